// ranks: 3
// Errors of waits between processes (over sockets: tcp_errors_mpi_test): deadlines, calls that differ, and
// failures that are passed on to other ranks.
#include <chrono>
#include <fstream>
#include <gtest/gtest.h>
#include <new>
#include <regex>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "conformance.h"
#include "gantry/tensors/libtorch.h"
#include "process_rig.h"

namespace gantry::testing {
namespace {

// Delay of a rank. The other ranks have then printed their warning, long before the deadline.
constexpr auto kLateInAJob = std::chrono::milliseconds(1500);

// During its lifetime, the address space of this process can grow by at most `more` bytes.
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

TEST(ProcessErrors, AnotherShapeOrDtypeIsNamedWithBoth) {
  for (const TensorSpec& spec :
       {TensorSpec{{2, 3}, torch::kFloat32}, TensorSpec{{6}, torch::kInt32}, TensorSpec{{5000}, torch::kInt32}}) {
    Job job;
    // The message has the expected size in bytes or is much smaller. Its header shows the difference before
    // any data are misread.
    if (job.rank() == 0) job.group->send(torch::zeros({6}, torch::kFloat32), 1, {Tag::Kind::kForward, 2, 1, 0});
    if (job.rank() == 1) {
      const std::string error = thrown_by([&] { job.group->recv(spec, 0, {Tag::Kind::kForward, 2, 1, 0}).wait(); });
      EXPECT_NE(error.find("float32 [6]"), std::string::npos) << error;
      EXPECT_NE(error.find(spec.dtype == torch::kInt32 ? "int32 [" : "float32 [2, 3]"), std::string::npos) << error;
      EXPECT_NE(error.find("forward of stage 2, microbatch 1"), std::string::npos) << error;
    } else {
      thrown_by([&] { job.group->recv({{1}, torch::kFloat32}, 1, {}).wait(); });  // ends by rank 1's failure
    }
  }
}

// A failure of any kind during an operation is reported to the ranks that wait for this rank, long before
// their deadline.
TEST(ProcessErrors, AnAllocationThatFailsWithinAnOperationIsReportedToTheOthers) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has its own idea of memory";
#endif
  Job job({.timeout_seconds = 600});
  constexpr std::int64_t kElements = std::int64_t{1} << 28;  // 256 MiB
  if (job.rank() == 0) job.group->hand_over(torch::zeros({kElements}, torch::kUInt8), 1, {});
  const auto post = [&] { return job.group->recv({{4}}, (job.rank() + 1) % kRanks, {Tag::Kind::kForward, 0, 0, 0}); };
  std::string heard;
  if (job.rank() == 1) {
    Work later = post();
    Work large = job.group->recv({{kElements}, torch::kUInt8}, 0, {});
    const AddressSpaceLimit limit(std::size_t{64} << 20);
    EXPECT_THROW(large.wait(), std::bad_alloc);
    heard = thrown_by([&] { later.wait(); });
  } else {
    heard = thrown_by([&] { post().wait(); });
  }
  EXPECT_EQ(heard, "memory: an allocation failed; use more tensor or pipeline ranks, or smaller microbatches");
}

TEST(ProcessErrors, ADeadlineSaysWhoWaitedForWhatAndEndsEveryRanksWaits) {
  Job job({.timeout_seconds = 2});
  if (job.rank() == 0) {
    const std::string error = thrown_by([&] { job.group->recv({{4}}, 2, {Tag::Kind::kForward, 1, 3, 0}).wait(); });
    EXPECT_EQ(error, "rank 0 waited 2 s for forward of stage 1, microbatch 3, entry 0 from rank 2");
    EXPECT_EQ(thrown_by([&] { job.group->barrier(); }), error);  // later ones too
  } else {
    Work work = job.group->recv({{4}}, 0, {});
    const std::string error = thrown_by([&] {
      while (!work.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_NE(error.find("rank 0 waited"), std::string::npos) << error;
  }
}

TEST(ProcessErrors, ADeadlineOfACollectiveNamesWhoIsMissing) {
  Job job({.timeout_seconds = 2});
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

TEST(ProcessErrors, DifferentCallsAreNamed) {
  Job job({.timeout_seconds = 20});
  torch::Tensor tensor = torch::ones({10});
  const std::string error =
      thrown_by([&] { (job.rank() == 1 ? job.group->barrier() : job.group->all_reduce(tensor)).wait(); });
  EXPECT_NE(error.find("all_reduce"), std::string::npos) << error;
  EXPECT_NE(error.find("barrier"), std::string::npos) << error;
  EXPECT_NE(error.find("same calls in the same order"), std::string::npos) << error;
}

TEST(ProcessErrors, DifferentSizesAreNamed) {
  Job job({.timeout_seconds = 20});
  torch::Tensor tensor = torch::ones({job.rank() == 1 ? 10 : 12});
  const std::string error = thrown_by([&] { job.group->all_reduce(tensor).wait(); });
  // Rank 1 expects 40 bytes and the others 48. The error states the sizes from the view of the rank that
  // reports it.
  EXPECT_TRUE(std::regex_search(
      error, std::regex("rank 1 called all_reduce of float32 .10. and received 48 bytes from rank [02] instead of 40|"
                        "rank [02] called all_reduce of float32 .12. and received 40 bytes from rank 1 instead of 48")))
      << error;
}

TEST(ProcessErrors, CallsThatFitOnlyInThemselvesAreRefusedByName) {
  for_each_disagreement(kRanks, [](OperationKind kind, Disagreement about, int odd) {
    Job job({.timeout_seconds = 20});
    const std::string error = thrown_by([&] { disagree(*job.group, kind, about, odd); });
    const std::string name = name_of(kind);
    const std::string reduction = kind == OperationKind::kReduceScatter ? " .sum." : "";
    // Timing decides which rank notices first: the odd one, or one of the others.
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
          error, std::regex("and received (more than )?[0-9]+ bytes from " + other + " instead of [0-9]+")))
          << error;
    }
  });
}

TEST(ProcessErrors, AnAbortEndsEveryMembersPendingAndLaterOperations) {
  Job job({.timeout_seconds = 20});
  // Rank 1 aborts when all ranks have left the rendezvous. The other ranks may be notified before their call.
  constexpr Tag kArrived{Tag::Kind::kForward, 0, 1, 0};
  if (job.rank() != 1) job.group->hand_over(torch::ones({1}), 1, kArrived);
  if (job.rank() == 1) {
    for (const int other : {0, 2}) job.group->recv({{1}}, other, kArrived).wait();
  }
  const auto receive = [&] {
    Work work = job.group->recv({{4}}, (job.rank() + 1) % kRanks, {});
    if (job.rank() == 1) job.group->abort("enough");
    work.wait();
  };
  EXPECT_EQ(thrown_by(receive), "enough");
  EXPECT_EQ(thrown_by([&] { job.group->send(torch::ones({1}), 0, {}); }), "enough");
  EXPECT_EQ(thrown_by([&] { job.backend->make_group("later", {0, 1, 2}); }), "enough");
}

TEST(ProcessErrors, TypesWithoutASumAreRefusedBeforeAnyoneWaits) {
  Job job;
  torch::Tensor flags = torch::ones({3}, torch::kBool);
  EXPECT_THROW(job.group->all_reduce(flags), UsageError);
  torch::Tensor same = torch::tensor({job.rank() == 0, true});
  job.group->broadcast(same, 0).wait();  // other collectives accept them
  EXPECT_TRUE(same[0].item<bool>());
}

// Long before the deadline, the waiting ranks print a warning that names the late rank. Then the work
// continues.
TEST(ProcessErrors, ALongWaitIsReportedAndNamesTheLateRank) {
  Job job({.timeout_seconds = 30, .notice_seconds = 0.3});
  torch::Tensor sum = torch::ones({1000});
  ::testing::internal::CaptureStderr();
  if (job.rank() == 1) std::this_thread::sleep_for(kLateInAJob);
  job.group->all_reduce(sum).wait();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(sum[0].item<float>(), kRanks);
  if (job.rank() == 1) {
    EXPECT_EQ(said, "");
  } else {
    EXPECT_NE(said.find("warning: " + name_of(job.rank()) + " has waited "), std::string::npos) << said;
    EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
    EXPECT_NE(said.find("the job ends when the wait reaches 30 s (comm.timeout_seconds)"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace gantry::testing
