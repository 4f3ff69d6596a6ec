// Training on fake devices: late kernels change no result, missing synchronisation between streams is found,
// and the host reads back once per step or token.
#include <future>
#include <gmock/gmock.h>

#include <c10/core/CachingDeviceAllocator.h>

#include "../checkpoint/small_run.h"
#include "device_ranks.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/generation/generate.h"
#include "gantry/pipeline/action_times.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns all weights after three steps, on the CPU. Only rank 0 fills them.
TensorDict weights_after(const Config& config, const StartRanks& start) {
  TensorDict weights;
  start(config, [&](World& world) {
    SmallRun run(world, config);
    for (int step = 0; step < 3; ++step) run.step(step);
    TensorDict all = run.weights();
    if (!world.is_main()) return;
    for (const auto& [name, tensor] : all) weights.set(name, tensor.cpu());
  });
  return weights;
}

int on_devices(const Config& config, const std::function<void(World&)>& body) {
  return launch_on_devices(config, body);
}

Config run_config(const SmallRunOptions& options = {.layout = {.pipeline = 2, .tensor = 2}}) {
  Config config = small_config(options);
  config.comm.recorder = 0;
  return config;
}

class LateKernels {
 public:
  explicit LateKernels(int microseconds) { set_kernel_timing(KernelTiming::kLate, microseconds); }
  ~LateKernels() { set_kernel_timing(KernelTiming::kAtOnce); }
};

class Faults {
 public:
  explicit Faults(const DeviceFaults& faults) { set_device_faults(faults); }
  ~Faults() { set_device_faults({}); }
};

TEST(DeviceTraining, LateKernelsGiveTheCpusBits) {
  for (const auto& options : {SmallRunOptions{.layout = {.pipeline = 2, .tensor = 2}},
                              SmallRunOptions{.layout = {.pipeline = 2, .data = 2}, .zero = 2, .schedule = "zb_h1"}}) {
    const Config config = run_config(options);
    const TensorDict expected = weights_after(config, launch);
    const LateKernels late(200);
    const TensorDict actual = weights_after(config, on_devices);
    ASSERT_EQ(expected.size(), actual.size());
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(torch::equal(tensor, actual.at(name))) << name;
  }
}

TEST(DeviceTraining, AWaitForAnEventThatIsLeftOutIsFound) {
  const Faults faults({.drops_wait = 5});
  weights_after(run_config(), on_devices);
  const std::vector<std::string> races = take_races();
  ASSERT_FALSE(races.empty());
  EXPECT_THAT(races.front(), HasSubstr("no event wait between"));
}

TEST(DeviceTraining, MemoryThatIsNotRecordedOnTheStreamsThatUseItIsFound) {
  const Faults faults({.drops_records = true});
  weights_after(run_config(), on_devices);
  const std::vector<std::string> races = take_races();
  ASSERT_FALSE(races.empty());
  EXPECT_THAT(races.front(), HasSubstr("neither waited for nor recorded"));
}

// The counts exclude the first step, which compares outputs and looks for parameters without a gradient.
TEST(DeviceTraining, AStepReadsBackOnceAndCopiesFromPinnedMemory) {
  for (const auto& options : {SmallRunOptions{.layout = {.pipeline = 2, .tensor = 2}},
                              SmallRunOptions{.layout = {.pipeline = 2, .data = 2}, .zero = 2, .schedule = "zb_h1"},
                              SmallRunOptions{.layout = {.data = 2, .tensor = 2}, .precision = "bfloat16"},
                              SmallRunOptions{.layout = {.data = 2}, .zero = 1, .precision = "float16"},
                              SmallRunOptions{.layout = {.data = 2}, .zero = 3, .precision = "float32"}}) {
    Config config = run_config(options);
    config.optimizer.clip_grad_norm = 0.5;
    EXPECT_EQ(launch_on_devices(config,
                                [&](World& world) {
                                  SmallRun run(world, config);
                                  run.step(0);
                                  run.mesh().world_group().barrier().wait();
                                  if (world.is_main()) reset_device_counts();
                                  run.mesh().world_group().barrier().wait();
                                  constexpr int kSteps = 3;
                                  for (int step = 1; step <= kSteps; ++step) run.step(step);
                                  const DeviceCounts counts = device_counts(world.rank());
                                  EXPECT_EQ(counts.host_reads, kSteps) << world.describe();
                                  EXPECT_EQ(counts.pageable_copies, 0) << world.describe();
                                }),
              0);
  }
}

// Limits the memory of a device during its lifetime.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t bytes) { set_device_limit(bytes); }
  ~MemoryLimit() { set_device_limit(kDeviceBytes); }
};

// Returns the error that a training run of a few steps ends with.
std::string line_with_memory(std::size_t bytes) {
  const Config config = run_config({.layout = {}});
  const MemoryLimit limit(bytes);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch_on_devices(config,
                              [&](World& world) {
                                SmallRun run(world, config);
                                for (int step = 0; step < 3; ++step) run.step(step);
                              }),
            ResourceError::kExitCode);
  return ::testing::internal::GetCapturedStderr();
}

TEST(DeviceMemory, AFailedAllocationSaysWhatTheMemoryHolds) {
  // The memory that is used after boosting is enough for the model and its gradients. The optimizer's state
  // is allocated after that.
  const Config config = run_config({.layout = {}});
  std::size_t boosted = 0, trained = 0;
  launch_on_devices(config, [&](World& world) {
    SmallRun run(world, config);
    const auto held = [] {
      return static_cast<std::size_t>(
          c10::getDeviceAllocator(kPretendType)->getDeviceStats(0).allocated_bytes[0].current);
    };
    boosted = held();
    run.step(0);
    trained = held();
  });
  ASSERT_GT(trained, boosted);
  EXPECT_THAT(line_with_memory(boosted / 2),
              HasSubstr("memory: an allocation on pretend:0 failed, which contains parameters "));
  EXPECT_THAT(line_with_memory(boosted + 64), HasSubstr("memory: the optimizer's first step needs "));
  // Enough memory for the optimizer's state, and hardly any for activations.
  EXPECT_THAT(line_with_memory(trained + 64),
              AllOf(HasSubstr("an allocation on pretend:0 failed"), HasSubstr(", activations and messages "),
                    HasSubstr("; expected memory for a step; use ")));
}

// Checks the number of host reads for ten more new tokens of each of two prompts. Each group of prompts in
// flight (one per stage) is read separately.
void expect_one_read_per_token(World& world, const Config& config, bool sample) {
  constexpr int kFew = 2, kMany = 12;
  HybridParallelPlugin plugin(world, config);
  auto boosted = plugin.boost({.model = build_model(config)});
  const auto reads_of = [&](int tokens) {
    plugin.mesh().world_group().barrier().wait();
    const std::int64_t before = device_counts(world.rank()).host_reads;
    generate(boosted, plugin, {{1, 2}, {4, 5, 6}}, {.max_new_tokens = tokens, .sample = sample});
    return device_counts(world.rank()).host_reads - before;
  };
  reads_of(kFew);  // excludes the additional reads of a first call
  const std::int64_t few = reads_of(kFew), many = reads_of(kMany);
  EXPECT_LE(many - few, (kMany - kFew) * config.parallel.pipeline) << world.describe() << (sample ? ", sampled" : "");
}

TEST(DeviceGeneration, ATokenIsReadBackOnce) {
  for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2, .tensor = 2}})
    for (const bool sample : {false, true}) {
      Config config = run_config({.layout = layout, .precision = "float32"});
      std::string& sizes = config.model.config_json;
      sizes.replace(sizes.find("_embeddings\": 8"), 15, "_embeddings\": 32");
      EXPECT_EQ(launch_on_devices(config, [&](World& world) { expect_one_read_per_token(world, config, sample); }), 0);
    }
}

// The host finishes an action at once, before the device has begun it.
TEST(DeviceTraining, AnActionsTimeIsTheDevices) {
  const c10::DeviceGuard on_device(pretend_device(0));
  const auto times = schedule::action_times(pretend_device(0));
  std::promise<void> gate;
  double opened = 0;
  {
    const LateKernels late(0);
    times->begin();
    pretend_stream(0, 0).submit([open = gate.get_future().share()] { open.wait(); });
    torch::ones({4}, torch::TensorOptions().device(pretend_device(0))).add_(1);
    times->end({schedule::ActionKind::kForward, 0, 1});
    times->begin();
    times->end({schedule::ActionKind::kForward, 0, 2});
    opened = steady_seconds();
    gate.set_value();
    const auto done = times->take();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_LT(done[0].start, opened);
    EXPECT_GE(done[0].end, opened);
    EXPECT_GE(done[1].start, done[0].end);
  }
}

TEST(DeviceTraining, ACheckpointGoesFromTheCpuToDevicesAndBack) {
  const ScratchFolder scratch;
  const Config wide = run_config({.layout = {.pipeline = 2, .tensor = 2}});
  const Config narrow = run_config({.layout = {.data = 2}, .zero = 1});
  std::string folder;
  TensorDict expected;
  // One step on the CPU, a second one on devices in another layout, and a third one on the CPU again.
  const auto part = [&](const Config& config, const StartRanks& start, int step, const std::string& name) {
    const std::string from = folder;
    EXPECT_EQ(start(config,
                    [&](World& world) {
                      SmallRun run(world, config);
                      if (!from.empty()) run.load(from);
                      run.step(step);
                      const std::string saved = run.save(scratch / name, step + 1);
                      TensorDict weights = run.weights();
                      if (!world.is_main()) return;
                      folder = saved;
                      expected = {};
                      for (const auto& [key, tensor] : weights) expected.set(key, tensor.cpu());
                    }),
              0);
  };
  const auto run = [&](const StartRanks& second, const std::string& name) {
    folder.clear();
    part(wide, launch, 0, name);
    part(narrow, second, 1, name);
    part(wide, launch, 2, name);
    return expected;
  };
  const TensorDict on_cpu = run(launch, "cpu"), through_devices = run(on_devices, "devices");
  ASSERT_EQ(on_cpu.size(), through_devices.size());
  for (const auto& [name, tensor] : on_cpu) EXPECT_TRUE(torch::equal(tensor, through_devices.at(name))) << name;
}

}  // namespace
}  // namespace gantry::testing
