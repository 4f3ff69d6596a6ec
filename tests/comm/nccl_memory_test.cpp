// Registered memory: all ranks register it with NCCL once. It is released when either the tensors or the
// group end, whichever is first.
#include "../checkpoint/small_run.h"
#include "gantry/comm/registered_memory.h"
#include "gantry/tensors/libtorch.h"
#include "nccl_ranks.h"

namespace gantry::testing {
namespace {

constexpr int kMembers = 3;

Config registering(const Layout& layout = {.tensor = kMembers}) {
  Config config = layout_config(layout);
  config.comm.recorder = 0;
  config.comm.registered_buffers = true;
  return config;
}

void expect_given_back() {
  const FakeCounts counts = fake_counts();
  EXPECT_EQ(counts.misuses, 0);
  EXPECT_EQ(counts.registered, 0);
  EXPECT_EQ(counts.memory, 0);
  EXPECT_EQ(counts.live, 0);
}

TEST(NcclMemory, IsSummedInPlaceAndGivenBackWithTheLastTensor) {
  reset_fake_counts();
  const auto [code, said] = outcome_on_fake(registering(), [](World&, ProcessGroup& group) {
    torch::Tensor part;
    {
      torch::Tensor zeros = communicated_zeros(&group, 10, here());
      EXPECT_EQ(zeros.sum().item<float>(), 0);
      zeros.add_(static_cast<float>(group.rank() + 1));
      group.all_reduce(zeros).wait();
      part = zeros.narrow(0, 4, 2);
    }
    EXPECT_GE(fake_counts().memory, 1);  // `part` still uses it
    EXPECT_EQ(part.cpu()[0].item<float>(), 1 + 2 + 3);
    group.barrier().wait();
    part = torch::Tensor();
    group.barrier().wait();
    EXPECT_EQ(fake_counts().memory, 0);
    EXPECT_EQ(fake_counts().registered, 0);
  });
  EXPECT_EQ(code, 0) << said;
  EXPECT_EQ(fake_counts().registered_calls, kMembers);
  expect_given_back();
}

TEST(NcclMemory, OutlivesItsGroup) {
  reset_fake_counts();
  std::vector<torch::Tensor> kept(kMembers);
  const auto [code, said] = outcome_on_fake(registering(), [&](World& world, ProcessGroup& group) {
    torch::Tensor& mine = kept[static_cast<std::size_t>(world.rank())];
    mine = communicated_zeros(&group, 6, here());
    group.all_reduce(mine);
  });
  EXPECT_EQ(code, 0) << said;
  EXPECT_EQ(fake_counts().registered, 0);
  EXPECT_EQ(fake_counts().memory, kMembers);
  kept.clear();
  expect_given_back();
}

TEST(NcclMemory, IsGivenBackWhereTheJobFails) {
  reset_fake_counts();
  set_fake_faults([](const FakeCall& call) { return call.rank == 1 ? FakeFault::kError : FakeFault::kNone; });
  const auto [code, said] = outcome_on_fake(registering(), [](World&, ProcessGroup& group) {
    torch::Tensor zeros = communicated_zeros(&group, 6, here());
    group.all_reduce(zeros).wait();
    group.barrier().wait();
  });
  set_fake_faults(nullptr);
  EXPECT_EQ(code, PeerError::kExitCode) << said;
  expect_given_back();
}

TEST(NcclMemory, IsPlainUnlessItIsAskedFor) {
  reset_fake_counts();
  Config config = registering();
  config.comm.registered_buffers = false;
  outcome_on_fake(config, [](World&, ProcessGroup& group) {
    torch::Tensor zeros = communicated_zeros(&group, 6, here());
    group.all_reduce(zeros).wait();
    EXPECT_EQ(fake_counts().memory, 0);
    EXPECT_FALSE(communicated_zeros(nullptr, 6, here()).is_cpu());
  });
  EXPECT_EQ(fake_counts().registered_calls, 0);
}

// Returns all weights after two steps, on rank 0.
TensorDict weights_of(const Config& config) {
  TensorDict weights;
  EXPECT_EQ(launch_on_devices(config,
                              [&](World& world) {
                                SmallRun run(world, config);
                                for (int step = 0; step < 2; ++step) run.step(step);
                                TensorDict all = run.weights();
                                if (!world.is_main()) return;
                                for (const auto& [name, tensor] : all) weights.set(name, tensor.cpu());
                              }),
            0);
  return weights;
}

TEST(NcclMemory, GradientsInItGiveTheSameBits) {
  for (const int zero : {0, 1}) {
    Config config = small_config({.layout = {.data = 2, .tensor = 2}, .zero = zero});
    const TensorDict expected = weights_of(config);
    config.comm.registered_buffers = true;
    reset_fake_counts();
    const TensorDict actual = weights_of(config);
    EXPECT_GT(fake_counts().registered_calls, 0) << zero;
    expect_given_back();
    ASSERT_EQ(expected.size(), actual.size());
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(torch::equal(tensor, actual.at(name))) << zero << name;
  }
}

}  // namespace
}  // namespace gantry::testing
