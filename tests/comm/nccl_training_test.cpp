// Training over the NCCL backend on support/fake_nccl, as in `gantry train`, with the recorder and the
// communication counts. Executor, optimizer and checkpoints have the same results as over threads.
#include <atomic>

#include "nccl_ranks.h"
#include "program.h"
#include "training_halves.h"

namespace gantry::testing {
namespace {

void expect_as_over_threads(const SmallRunOptions& options, bool sums_by_rank = false) {
  const ScratchFolder scratch;
  Config config = small_config(options);
  config.output = scratch.path();
  config.optimizer.clip_grad_norm = 0.5;
  Halves threads, nccl;
  ASSERT_EQ(launch(config, [&](World& world) { train_in_halves(world, config, scratch / "threads", threads); }), 0);
  config.comm.sums_by_rank = sums_by_rank;
  config.comm.registered_buffers = sums_by_rank;
  reset_fake_counts();
  std::atomic<int> sends{0}, sums{0}, scattered_sums{0}, rooted_sums{0};
  set_fake_faults([&](const FakeCall& call) {
    sends += call.kind == "ncclSend";
    sums += call.kind == "ncclAllReduce";
    scattered_sums += call.kind == "ncclReduceScatter";
    rooted_sums += call.kind == "ncclReduce";
    return call.number % 7 == call.rank ? FakeFault::kDelay : FakeFault::kNone;
  });
  ASSERT_EQ(launch_on_devices(config, [&](World& world) { train_in_halves(world, config, scratch / "nccl", nccl); }),
            0);
  set_fake_faults(nullptr);
  EXPECT_GT(sends, 0) << "stages' messages went another way";
  EXPECT_GT(sums, 0);  // only maxima, if sums_by_rank is set
  EXPECT_EQ(scattered_sums > 0, options.zero > 0 && !sums_by_rank);
  EXPECT_EQ(rooted_sums, 0) << "a bucket's parts differ in size, so each is a call of its own";
  EXPECT_EQ(fake_counts().misuses, 0);
  EXPECT_EQ(fake_counts().live, 0);
  EXPECT_EQ(live_events(), 0);
  ASSERT_GT(nccl.saved.size(), 0u);
  expect_same(threads.saved, nccl.saved, "after two steps");
  expect_same(threads.resumed, nccl.resumed, "after two more from the checkpoint");
}

TEST(NcclTraining, StagesAndTensorRanks) { expect_as_over_threads({.layout = {.pipeline = 2, .tensor = 2}}); }

TEST(NcclTraining, ReplicasThatShareTheOptimizersState) {
  expect_as_over_threads({.layout = {.pipeline = 2, .data = 2}, .zero = 2, .schedule = "zb_h1"});
}

TEST(NcclTraining, SumsByRankOfReplicasAndTensorRanks) {
  expect_as_over_threads({.layout = {.pipeline = 1, .data = 2, .tensor = 2}, .zero = 1}, /*sums_by_rank=*/true);
}

}  // namespace
}  // namespace gantry::testing
