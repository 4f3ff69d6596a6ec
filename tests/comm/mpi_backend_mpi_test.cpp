// ranks: 3, also over tcp
// Tests of the process backends only: chunks, the limits of tags, and results that are bitwise identical to
// those of the local backend.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>

#include "conformance.h"
#include "gantry/comm/processes/message_tags.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/buffer_pool.h"
#include "gantry/tensors/libtorch.h"
#include "process_rig.h"
#include "rough.h"

namespace gantry::testing {
namespace {

using Kind = Tag::Kind;

// During its lifetime, no file of this process, in memory or on disk, can grow beyond 1 MiB.
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

TEST(ProcessBackend, MessagesAndCollectivesOfManyChunksAndSegments) {
  Job job({.timeout_seconds = 30}, {.chunk_bytes = 5000, .direct_bytes = 64, .segment_bytes = 4096});
  ProcessGroup& group = *job.group;
  const int next = (job.rank() + 1) % kRanks, previous = (job.rank() + 2) % kRanks;
  const std::int64_t rows = 4001;  // 48012 bytes, so the last chunk is shorter
  const auto full = [&](int rank) { return (torch::arange(rows * 3, torch::kInt32) + 1000 * rank).view({rows, 3}); };
  group.send(full(job.rank()), next, {Kind::kUser, 0, 0, 0});
  EXPECT_TRUE(
      torch::equal(group.recv({{rows, 3}, torch::kInt32}, previous, {Kind::kUser, 0, 0, 0}).result(), full(previous)));

  const torch::Tensor sum = full(0) + full(1) + full(2);
  torch::Tensor reduced = full(job.rank());
  group.all_reduce(reduced).wait();
  EXPECT_TRUE(torch::equal(reduced, sum));

  for (int root = 0; root < kRanks; ++root) {
    torch::Tensor notified = full(job.rank());
    group.broadcast(notified, root).wait();
    EXPECT_TRUE(torch::equal(notified, full(root)));
  }

  const Sizes sizes{4000, 0, 1};  // most of it, nothing, less than a segment
  const std::int64_t first = job.rank() == 0 ? 0 : 4000;
  torch::Tensor part = torch::zeros({sizes[job.rank()], 3}, torch::kInt32);
  group.reduce_scatter(part, full(job.rank()), sizes).wait();
  EXPECT_TRUE(torch::equal(part, sum.narrow(0, first, sizes[job.rank()])));
  torch::Tensor gathered = torch::zeros({rows, 3}, torch::kInt32);
  group.all_gather(gathered, part, sizes).wait();
  EXPECT_TRUE(torch::equal(gathered, sum));
}

// With direct_ranks 2, the small ones of the three ranks are passed on in rounds.
TEST(ProcessBackend, SumsHaveTheLocalBackendsBits) {
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
      for (const int direct_ranks : {16, 2}) {
        Job job({.timeout_seconds = 30}, {.direct_ranks = direct_ranks});
        torch::Tensor sum = rough(job.rank(), elements, type);
        job.group->all_reduce(sum).wait();
        EXPECT_TRUE(torch::equal(sum, local)) << type << " " << elements << " " << direct_ranks;
      }
    }
  }
}

TEST(ProcessBackend, WaitsInAnyOrderAndDroppedWorksFinish) {
  Job job;
  ProcessGroup& group = *job.group;
  const int peer = (job.rank() + 1) % kRanks, from = (job.rank() + 2) % kRanks;
  std::vector<Work> works;
  std::vector<torch::Tensor> tensors;
  for (int i = 0; i < 12; ++i) {
    works.push_back(group.recv({{50'000 * (i % 2) + 1}, torch::kFloat32}, from, {Kind::kForward, i, 0, 0}));
    tensors.push_back(torch::full({i % 3 == 0 ? 3 : 20'000}, job.rank() + i, torch::kFloat32));
    Work reduction = group.all_reduce(tensors.back());
    if (i % 4 != 0) works.push_back(reduction);  // the other Works are destroyed
    group.send(torch::full({50'000 * (i % 2) + 1}, i, torch::kFloat32), peer, {Kind::kForward, i, 0, 0});
  }
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  group.barrier().wait();
  job.backend->close();  // also completes the operations whose Works were destroyed
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(torch::equal(tensors[i], torch::full_like(tensors[i], 3.0 + 3 * i))) << i;
}

TEST(ProcessBackend, ASendKeepsWhatItCarriesAndNeverWaits) {
  Job job;
  ProcessGroup& group = *job.group;
  const int next = (job.rank() + 1) % kRanks, previous = (job.rank() + 2) % kRanks;
  {
    torch::Tensor large = torch::full({1 << 20}, job.rank(), torch::kFloat32);
    Work sent = group.send(large, next, {Kind::kForward, 0, 0, 0});
    sent.wait();                        // all ranks send first, so a send must not wait for its receiver
    large.set_data(torch::empty({0}));  // as pipeline stages do to free activations after sending them
  }
  const torch::Tensor received = group.recv({{1 << 20}, torch::kFloat32}, previous, {Kind::kForward, 0, 0, 0}).result();
  EXPECT_TRUE(torch::equal(received, torch::full({1 << 20}, previous, torch::kFloat32)));
}

TEST(ProcessBackend, MessagesOfOneTagKeepTheirOrder) {
  Job job;
  const int next = (job.rank() + 1) % kRanks, previous = (job.rank() + 2) % kRanks;
  std::vector<Work> works;
  for (int i = 0; i < 6; ++i) works.push_back(job.group->recv({{i % 2 ? 20'000 : 5}, torch::kInt64}, previous, {}));
  for (int i = 0; i < 6; ++i) job.group->send(torch::full({i % 2 ? 20'000 : 5}, i, torch::kInt64), next, {});
  for (int i = 5; i >= 0; --i) EXPECT_TRUE((works[i].result() == i).all().item<bool>()) << i;
}

TEST(ProcessBackend, TagsThatDoNotFitAreRefused) {
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

TEST(ProcessBackend, DataTagsAndCallCodesNeverMeet) {
  for (const int largest : {2147483647, 8388607}) {
    const DataTags tags(largest);
    EXPECT_LT(tags.collective(~std::uint64_t{0}, (1 << CallCode::kBits) - 1), tags.payload(0));
    EXPECT_LE(tags.payload(~std::uint64_t{0}), largest);
    EXPECT_GE(tags.payload(~std::uint64_t{0}), tags.payload(0));
  }
  EXPECT_LE(call_codes(), 1 << CallCode::kBits);
  EXPECT_EQ(describe_call_code(CallCode{OperationKind::kAllReduce, ReduceOp::kMax, torch::kBFloat16}.encode()),
            "all_reduce (max) of bfloat16");
  EXPECT_EQ(describe_call_code(CallCode{OperationKind::kReduceScatter, ReduceOp::kMin, torch::kInt64}.encode()),
            "reduce_scatter (min) of int64");
  EXPECT_EQ(describe_call_code(CallCode{OperationKind::kAllToAll, ReduceOp::kSum, torch::kFloat32}.encode()),
            "all_to_all of float32");
  EXPECT_EQ(describe_call_code(CallCode{}.encode()), "barrier");
}

// The first rank of the host prints one warning. Messages then replace the shared memory.
TEST(ProcessBackend, AHostWhoseRanksShareNoMemorySaysSo) {
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
    EXPECT_TRUE(said.starts_with("warning: rank 0: the ranks of this host cannot share memory (memfd_create of "))
        << said;
    EXPECT_NE(said.find("File too large"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  } else {
    EXPECT_EQ(said, "");
  }
}

TEST(ProcessBackend, OverlappingGroupsDoNotMix) {
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
    EXPECT_LT(pool.idle_bytes(), idle);  // taken from the idle memory
  }
  EXPECT_EQ(pool.idle_bytes(), idle);
  EXPECT_EQ(pool.tensor({0, 3}, torch::kFloat32).numel(), 0);
}

}  // namespace
}  // namespace gantry::testing
