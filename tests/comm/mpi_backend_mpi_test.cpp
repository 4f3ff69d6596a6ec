// ranks: 3
// What only the MPI backend has: chunks, tags' limits, deadlines, failures that travel, and the local backend's bits.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <new>
#include <numeric>
#include <optional>
#include <regex>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <torch/torch.h>

#include "conformance.h"
#include "gantry/comm/launch.h"
#include "gantry/comm/mpi/buffer_pool.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/comm/mpi/mpi_tags.h"
#include "gantry/core/error.h"
#include "rough.h"

namespace gantry::testing {
namespace {

constexpr int kRanks = 3;
using Kind = Tag::Kind;

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

// A backend and the group of all ranks.
struct Job {
  explicit Job(const WaitLimits& waits = {.timeout_seconds = 30}, MpiLimits limits = {})
      : backend(make_mpi_backend(waits, name_of, limits)), group(backend->make_group("all", {0, 1, 2})) {}
  int rank() const { return group->rank(); }
  std::unique_ptr<MpiBackend> backend;
  std::unique_ptr<ProcessGroup> group;
};

// While it lives, this process may take so much more address space than it has now.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::size_t more) {
    ::getrlimit(RLIMIT_AS, &former_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit lower{pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + more, former_.rlim_max};
    ::setrlimit(RLIMIT_AS, &lower);
  }
  ~AddressSpaceLimit() { ::setrlimit(RLIMIT_AS, &former_); }

 private:
  rlimit former_{};
};

// While it lives, no file of this process, in memory or on a disk, can become larger than 1 MiB.
class SmallFiles {
 public:
  SmallFiles() : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit least{1 << 20, former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &least);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &former_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit former_{};
  sighandler_t handler_;
};

// What an operation throws; "" if nothing.
template <class Error = PeerError, class Body>
std::string thrown_by(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MpiBackend, MessagesAndCollectivesOfManyChunksAndSegments) {
  Job job({.timeout_seconds = 30}, {.chunk_bytes = 5000, .direct_bytes = 64, .segment_bytes = 4096});
  ProcessGroup& group = *job.group;
  const int next = (job.rank() + 1) % kRanks, previous = (job.rank() + 2) % kRanks;
  const std::int64_t rows = 4001;  // 48012 bytes: a last chunk that is shorter
  const auto whole = [&](int rank) { return (torch::arange(rows * 3, torch::kInt32) + 1000 * rank).view({rows, 3}); };
  group.send(whole(job.rank()), next, {Kind::kUser, 0, 0, 0});
  EXPECT_TRUE(
      torch::equal(group.recv({{rows, 3}, torch::kInt32}, previous, {Kind::kUser, 0, 0, 0}).result(), whole(previous)));

  const torch::Tensor sum = whole(0) + whole(1) + whole(2);
  torch::Tensor reduced = whole(job.rank());
  group.all_reduce(reduced).wait();
  EXPECT_TRUE(torch::equal(reduced, sum));

  for (int root = 0; root < kRanks; ++root) {
    torch::Tensor told = whole(job.rank());
    group.broadcast(told, root).wait();
    EXPECT_TRUE(torch::equal(told, whole(root)));
  }

  const Sizes sizes{4000, 0, 1};  // most of it, nothing, less than a segment
  const std::int64_t first = job.rank() == 0 ? 0 : 4000;
  torch::Tensor part = torch::zeros({sizes[job.rank()], 3}, torch::kInt32);
  group.reduce_scatter(part, whole(job.rank()), sizes).wait();
  EXPECT_TRUE(torch::equal(part, sum.narrow(0, first, sizes[job.rank()])));
  torch::Tensor gathered = torch::zeros({rows, 3}, torch::kInt32);
  group.all_gather(gathered, part, sizes).wait();
  EXPECT_TRUE(torch::equal(gathered, sum));
}

TEST(MpiBackend, SumsHaveTheLocalBackendsBits) {
  for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    for (const std::int64_t elements : {1, 1000, 300'001}) {  // direct, and sliced in segments
      torch::Tensor local;
      Config config = layout_config({.tensor = kRanks});
      config.comm.backend = "local";
      ASSERT_EQ(launch(config,
                       [&](World& world) {
                         std::vector<int> ranks{0, 1, 2};
                         const auto group = world.backend().make_group("all", ranks);
                         torch::Tensor sum = rough(world.rank(), elements, type);
                         group->all_reduce(sum).wait();
                         if (world.is_main()) local = sum;
                       }),
                0);
      Job job;
      torch::Tensor sum = rough(job.rank(), elements, type);
      job.group->all_reduce(sum).wait();
      EXPECT_TRUE(torch::equal(sum, local)) << type << " " << elements;
    }
  }
}

TEST(MpiBackend, WaitsInAnyOrderAndDroppedWorksFinish) {
  Job job;
  ProcessGroup& group = *job.group;
  const int peer = (job.rank() + 1) % kRanks, from = (job.rank() + 2) % kRanks;
  std::vector<Work> works;
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < 12; ++i) {
    works.push_back(group.recv({{50'000 * (i % 2) + 1}, torch::kFloat32}, from, {Kind::kForward, i, 0, 0}));
    tensors.push_back(torch::full({i % 3 == 0 ? 3 : 20'000}, job.rank() + i, torch::kFloat32));
    Work reduction = group.all_reduce(tensors.back());
    if (i % 4 != 0) works.push_back(reduction);  // the others are dropped
    group.send(torch::full({50'000 * (i % 2) + 1}, i, torch::kFloat32), peer, {Kind::kForward, i, 0, 0});
  }
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  group.barrier().wait();
  job.backend->close();  // also those dropped
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(torch::equal(tensors[i], torch::full_like(tensors[i], 3.0 + 3 * i))) << i;
}

TEST(MpiBackend, ASendKeepsWhatItCarriesAndNeverWaits) {
  Job job;
  ProcessGroup& group = *job.group;
  const int next = (job.rank() + 1) % kRanks, previous = (job.rank() + 2) % kRanks;
  {
    torch::Tensor large = torch::full({1 << 20}, job.rank(), torch::kFloat32);
    Work sent = group.send(large, next, {Kind::kForward, 0, 0, 0});
    sent.wait();                        // everyone sends first: nobody may wait for a receiver
    large.set_data(torch::empty({0}));  // as stages do to free what they have sent
  }
  const torch::Tensor received = group.recv({{1 << 20}, torch::kFloat32}, previous, {Kind::kForward, 0, 0, 0}).result();
  EXPECT_TRUE(torch::equal(received, torch::full({1 << 20}, previous, torch::kFloat32)));
}

TEST(MpiBackend, MessagesOfOneTagKeepTheirOrder) {
  Job job;
  const int next = (job.rank() + 1) % kRanks, previous = (job.rank() + 2) % kRanks;
  std::vector<Work> works;
  for (int i = 0; i < 6; ++i) works.push_back(job.group->recv({{i % 2 ? 20'000 : 5}, torch::kInt64}, previous, {}));
  for (int i = 0; i < 6; ++i) job.group->send(torch::full({i % 2 ? 20'000 : 5}, i, torch::kInt64), next, {});
  for (int i = 5; i >= 0; --i) EXPECT_TRUE((works[i].result() == i).all().item<bool>()) << i;
}

TEST(MpiBackend, AnotherShapeOrDtypeIsNamedWithBoth) {
  for (const TensorSpec& spec :
       {TensorSpec{{2, 3}, torch::kFloat32}, TensorSpec{{6}, torch::kInt32}, TensorSpec{{5000}, torch::kInt32}}) {
    Job job;
    // Six bytes each way or far fewer than expected: the head tells before anything is misread.
    if (job.rank() == 0) job.group->send(torch::zeros({6}, torch::kFloat32), 1, {Kind::kForward, 2, 1, 0});
    if (job.rank() == 1) {
      const std::string error = thrown_by([&] { job.group->recv(spec, 0, {Kind::kForward, 2, 1, 0}).wait(); });
      EXPECT_NE(error.find("float32 [6]"), std::string::npos) << error;
      EXPECT_NE(error.find(spec.dtype == torch::kInt32 ? "int32 [" : "float32 [2, 3]"), std::string::npos) << error;
      EXPECT_NE(error.find("forward of stage 2, microbatch 1"), std::string::npos) << error;
    } else {
      thrown_by([&] { job.group->recv({{1}, torch::kFloat32}, 1, {}).wait(); });  // until rank 1's failure comes
    }
  }
}

TEST(MpiBackend, TagsThatDoNotFitAreRefused) {
  Job job;
  const torch::Tensor one = torch::ones({1});
  const TagLayout wide = tag_layout(2147483647), narrow = tag_layout(8388607);
  EXPECT_EQ(wide.encode({Kind::kMetadata, 1023, 8191, 63}), 2147483647);
  EXPECT_EQ(narrow.encode({Kind::kMetadata, 127, 1023, 15}), 8388607);
  EXPECT_THROW(tag_layout(32767), ResourceError);
  EXPECT_NE(thrown_by<UsageError>([&] {
              narrow.encode({Kind::kForward, 0, 1024, 0});
            }).find("0 to 1023"),
            std::string::npos);
  for (const Tag& tag : {Tag{Kind::kForward, 1 << 20, 0, 0}, Tag{Kind::kForward, 0, 1 << 20, 0},
                         Tag{Kind::kForward, 0, 0, 1 << 20}, Tag{Kind::kForward, -1, 0, 0}}) {
    EXPECT_NE(thrown_by<UsageError>([&] { job.group->send(one, 0, tag); }).find("does not fit"), std::string::npos);
    EXPECT_THROW(job.group->recv({{1}}, 0, tag), UsageError);
  }
  EXPECT_THROW(job.group->send(one, kRanks, {}), UsageError);
}

TEST(MpiBackend, DataTagsAndCallCodesNeverMeet) {
  for (const int largest : {2147483647, 8388607}) {
    const DataTags tags(largest);
    EXPECT_LT(tags.collective(~std::uint64_t{0}, (1 << CallCode::kBits) - 1), tags.payload(0));
    EXPECT_LE(tags.payload(~std::uint64_t{0}), largest);
    EXPECT_GE(tags.payload(~std::uint64_t{0}), tags.payload(0));
  }
  EXPECT_LE(call_codes(), 1 << CallCode::kBits);
  EXPECT_EQ(describe_call_code(CallCode{CollectiveKind::kAllReduce, ReduceOp::kMax, torch::kBFloat16}.encode()),
            "all_reduce (max) of bfloat16");
  EXPECT_EQ(describe_call_code(CallCode{CollectiveKind::kReduceScatter, ReduceOp::kMin, torch::kInt64}.encode()),
            "reduce_scatter (min) of int64");
  EXPECT_EQ(describe_call_code(CallCode{CollectiveKind::kAllToAll, ReduceOp::kSum, torch::kFloat32}.encode()),
            "all_to_all of float32");
  EXPECT_EQ(describe_call_code(CallCode{}.encode()), "barrier");
}

// Of any kind, in the midst of an operation: who waits for this rank hears of it, and not from a deadline.
TEST(MpiBackend, AnAllocationThatFailsWithinAnOperationIsToldToTheOthers) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has its own idea of memory";
#endif
  Job job({.timeout_seconds = 600});
  constexpr std::int64_t kElements = std::int64_t{1} << 28;  // 256 MiB
  if (job.rank() == 0) job.group->hand_over(torch::zeros({kElements}, torch::kUInt8), 1, {});
  Work later = job.group->recv({{4}}, (job.rank() + 1) % kRanks, {Kind::kForward, 0, 0, 0});
  if (job.rank() == 1) {
    Work large = job.group->recv({{kElements}, torch::kUInt8}, 0, {});
    const AddressSpaceLimit limit(std::size_t{64} << 20);
    EXPECT_THROW(large.wait(), std::bad_alloc);
  }
  EXPECT_EQ(thrown_by([&] { later.wait(); }),
            "memory: an allocation failed; use more tensor or pipeline ranks, or smaller microbatches");
}

// Once, by the host's first rank; then messages carry what would have gone through memory.
TEST(MpiBackend, AHostWhoseRanksShareNoMemorySaysSo) {
  ::testing::internal::CaptureStderr();
  std::optional<Job> job;
  {
    const SmallFiles limit;
    job.emplace();
  }
  torch::Tensor sum = torch::ones({100'000});
  job->group->all_reduce(sum).wait();
  EXPECT_EQ(sum[99'999].item<float>(), kRanks);
  const std::string said = ::testing::internal::GetCapturedStderr();
  if (job->rank() == 0) {
    EXPECT_TRUE(said.starts_with("warning: rank 0: the ranks of this host share no memory (memfd_create of ")) << said;
    EXPECT_NE(said.find("File too large"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  } else {
    EXPECT_EQ(said, "");
  }
}

TEST(MpiBackend, ADeadlineSaysWhoWaitedForWhatAndEndsEveryRanksWaits) {
  Job job({.timeout_seconds = 0.4});
  if (job.rank() == 0) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = thrown_by([&] { job.group->recv({{4}}, 2, {Kind::kForward, 1, 3, 0}).wait(); });
    EXPECT_EQ(error, "rank 0 waited 0.4 s for forward of stage 1, microbatch 3, entry 0 from rank 2");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_EQ(thrown_by([&] { job.group->barrier(); }), error);  // later ones too
  } else {
    Work work = job.group->recv({{4}}, 0, {});
    const std::string error = thrown_by([&] {
      while (!work.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_NE(error.find("rank 0 waited"), std::string::npos) << error;
  }
}

TEST(MpiBackend, ADeadlineOfACollectiveNamesWhoIsMissing) {
  Job job({.timeout_seconds = 0.4});
  torch::Tensor tensor = torch::ones({100'000});
  if (job.rank() == 2) {
    Work work = job.group->recv({{4}}, 0, {});
    thrown_by([&] {
      while (!work.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  } else {
    const std::string error = thrown_by([&] { job.group->all_reduce(tensor).wait(); });
    EXPECT_NE(error.find("for all_reduce of float32 [100000], number 0 of group 'all', which rank 2 has not joined"),
              std::string::npos)
        << error;
  }
}

TEST(MpiBackend, DifferentCallsAreNamed) {
  Job job({.timeout_seconds = 20});
  torch::Tensor tensor = torch::ones({10});
  const std::string error =
      thrown_by([&] { (job.rank() == 1 ? job.group->barrier() : job.group->all_reduce(tensor)).wait(); });
  EXPECT_NE(error.find("all_reduce"), std::string::npos) << error;
  EXPECT_NE(error.find("barrier"), std::string::npos) << error;
  EXPECT_NE(error.find("same calls in the same order"), std::string::npos) << error;
}

TEST(MpiBackend, DifferentSizesAreNamed) {
  Job job({.timeout_seconds = 20});
  torch::Tensor tensor = torch::ones({job.rank() == 1 ? 10 : 12});
  const std::string error = thrown_by([&] { job.group->all_reduce(tensor).wait(); });
  // 40 and 48 bytes, each as the rank that has it says.
  EXPECT_TRUE(std::regex_search(
      error, std::regex("rank 1 called all_reduce of float32 .10. and got 48 bytes from rank [02] where 40 belong|"
                        "rank [02] called all_reduce of float32 .12. and got 40 bytes from rank 1 where 48 belong")))
      << error;
}

TEST(MpiBackend, CallsThatFitOnlyInThemselvesAreRefusedByName) {
  for_each_disagreement(kRanks, [](CollectiveKind kind, Disagreement about, int odd) {
    Job job({.timeout_seconds = 20});
    const std::string error = thrown_by([&] { disagree(*job.group, kind, about, odd); });
    const std::string name = collective_name(kind);
    const std::string reduction = kind == CollectiveKind::kReduceScatter ? " .sum." : "";
    // Who notices first is a matter of time: the rank at odds, or one of the others.
    const std::string rank = name_of(odd), other = "rank [0-2]";
    const std::string called =
        about == Disagreement::kDtypes
            ? "called " + name + reduction + " of float(32|64)|called " + name + " of float(32|64)"
            : "called " + name + " of float32";
    EXPECT_TRUE(std::regex_search(error, std::regex("^group 'all': " + other + " (" + called + ")"))) << error;
    EXPECT_NE(error.find(rank), std::string::npos) << error;
    if (about == Disagreement::kDtypes) {
      EXPECT_NE(error.find("float32"), std::string::npos) << error;
      EXPECT_NE(error.find("float64"), std::string::npos) << error;
      EXPECT_NE(error.find("all members must make the same calls in the same order"), std::string::npos) << error;
    } else {
      EXPECT_TRUE(std::regex_search(
          error, std::regex("and got (more than )?[0-9]+ bytes from " + other + " where [0-9]+ belong")))
          << error;
    }
  });
}

TEST(MpiBackend, AnAbortEndsEveryMembersPendingAndLaterOperations) {
  Job job({.timeout_seconds = 20});
  Work work = job.group->recv({{4}}, (job.rank() + 1) % kRanks, {});
  if (job.rank() == 1) job.group->abort("enough");
  EXPECT_EQ(thrown_by([&] { work.wait(); }), "enough");
  EXPECT_EQ(thrown_by([&] { job.group->send(torch::ones({1}), 0, {}); }), "enough");
  EXPECT_EQ(thrown_by([&] { job.backend->make_group("later", {0, 1, 2}); }), "enough");
}

TEST(MpiBackend, TypesWithoutASumAreRefusedBeforeAnyoneWaits) {
  Job job;
  torch::Tensor flags = torch::ones({3}, torch::kBool);
  EXPECT_THROW(job.group->all_reduce(flags), UsageError);
  torch::Tensor same = torch::tensor({job.rank() == 0, true});
  job.group->broadcast(same, 0).wait();  // but they travel
  EXPECT_TRUE(same[0].item<bool>());
}

TEST(MpiBackend, OverlappingGroupsDoNotMix) {
  Job job;
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  std::vector<torch::Tensor> tensors;
  std::vector<Work> works;
  for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {1, 2}, {0, 2}, {1}, {0, 1, 2}}) {
    if (std::find(ranks.begin(), ranks.end(), job.rank()) == ranks.end()) continue;
    groups.push_back(job.backend->make_group("some", ranks));
    for (const int elements : {10, 30'000}) {
      tensors.push_back(torch::full({elements}, 1 << job.rank(), torch::kInt64));
      works.push_back(groups.back()->all_reduce(tensors.back()));
    }
    tensors.push_back(torch::tensor(
        {std::accumulate(ranks.begin(), ranks.end(), 0, [](int sum, int rank) { return sum + (1 << rank); })}));
    works.push_back({});
  }
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  for (std::size_t i = 0; i < tensors.size(); i += 3) {
    EXPECT_TRUE((tensors[i] == tensors[i + 2]).all().item<bool>());
    EXPECT_TRUE((tensors[i + 1] == tensors[i + 2]).all().item<bool>());
  }
}

TEST(BufferPool, KeepsMemoryForTheNextAndAlignsIt) {
  BufferPool& pool = BufferPool::instance();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.take(100'000).get()) % 64, 0u);
  const std::size_t idle = pool.idle_bytes();
  {
    const torch::Tensor tensor = pool.tensor({25'000}, torch::kFloat32);
    const torch::Tensor view = tensor.narrow(0, 5, 10);
    EXPECT_LT(pool.idle_bytes(), idle);  // taken from there
  }
  EXPECT_EQ(pool.idle_bytes(), idle);
  EXPECT_EQ(pool.tensor({0, 3}, torch::kFloat32).numel(), 0);
}

// Long before the deadline those that wait say for whom; then the work goes on.
TEST(MpiBackend, ALongWaitIsToldOfAndNamesTheLateRank) {
  Job job({.timeout_seconds = 30, .notice_seconds = 0.3});
  torch::Tensor sum = torch::ones({1000});
  ::testing::internal::CaptureStderr();
  if (job.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  job.group->all_reduce(sum).wait();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(sum[0].item<float>(), kRanks);
  if (job.rank() == 1) {
    EXPECT_EQ(said, "");
  } else {
    EXPECT_NE(said.find("warning: " + name_of(job.rank()) + " has waited 0."), std::string::npos) << said;
    EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
    EXPECT_NE(said.find("the job ends after 30 s of it (comm.timeout_seconds)"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace gantry::testing
