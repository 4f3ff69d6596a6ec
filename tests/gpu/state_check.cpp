// Checkpoints that move between a device and the CPU, CUDA graphs, and generated tokens.
#include <gtest/gtest.h>

#include "../checkpoint/small_run.h"
#include "checked_device.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "program.h"

namespace gantry::testing {
namespace {

// A small run of one rank on a backend: loads `from` unless it is empty, takes two steps, and saves into
// `folder`.
struct Leg {
  std::string backend, from;
  std::int64_t first_step;
};
struct LegResult {
  TensorDict loaded, trained;
  std::string checkpoint;
};

LegResult run_leg(const Leg& leg, const std::string& folder) {
  Config config = small_config({});
  config.comm.backend = leg.backend;
  LegResult result;
  const int code = launch(config, [&](World& world) {
    SmallRun run(world, config);
    if (!leg.from.empty()) run.load(leg.from);
    result.loaded = on_cpu(run.weights());
    for (std::int64_t step = 0; step < 2; ++step) run.step(leg.first_step + step);
    result.trained = on_cpu(run.weights());
    result.checkpoint = run.save(folder, leg.first_step + 2);
  });
  EXPECT_EQ(code, 0) << leg.backend;
  return result;
}

void expect_bits(const TensorDict& expected, const TensorDict& actual, const std::string& label) {
  ASSERT_EQ(expected.size(), actual.size()) << label;
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(torch::equal(tensor, actual.at(name))) << label << name;
}

void expect_near(const TensorDict& expected, const TensorDict& actual, const std::string& label) {
  ASSERT_EQ(expected.size(), actual.size()) << label;
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(torch::allclose(tensor, actual.at(name), 1e-8, 1e-10)) << label << name;
}

TEST(DeviceState, ACheckpointOfTheDeviceGoesOnOnTheCpu) {
  const ScratchFolder scratch;
  const LegResult device = run_leg({checked_backend(), "", 0}, scratch / "device");
  const LegResult cpu = run_leg({"local", device.checkpoint, 2}, scratch / "cpu");
  expect_bits(device.trained, cpu.loaded, "loaded on the CPU: ");
  const LegResult further = run_leg({checked_backend(), device.checkpoint, 2}, scratch / "further");
  expect_near(cpu.trained, further.trained, "after two more steps: ");
}

TEST(DeviceState, ACheckpointOfTheCpuGoesOnOnTheDevice) {
  const ScratchFolder scratch;
  const LegResult cpu = run_leg({"local", "", 0}, scratch / "cpu");
  const LegResult device = run_leg({checked_backend(), cpu.checkpoint, 2}, scratch / "device");
  expect_bits(cpu.trained, device.loaded, "loaded on the device: ");
  const LegResult back = run_leg({"local", device.checkpoint, 4}, scratch / "back");
  expect_bits(device.trained, back.loaded, "loaded on the CPU again: ");
}

// Eight steps, because graphs are not used in the first ones.
TEST(DeviceOptions, RecordedStagesGiveTheBitsOfThoseThatRun) {
  if (checked_backend() != "nccl") GTEST_SKIP() << "needs a device, and NCCL";
  for (const char* precision : {"float32", "bfloat16"}) {
    TensorDict plain;
    for (const bool graphs : {false, true}) {
      Config config = small_config({.precision = precision});
      config.comm.backend = checked_backend();
      config.train.device_graphs = graphs;
      EXPECT_EQ(launch(config,
                       [&](World& world) {
                         SmallRun run(world, config);
                         for (std::int64_t step = 0; step < 8; ++step) run.step(step);
                         const TensorDict end = on_cpu(run.weights());
                         if (graphs)
                           expect_bits(plain, end, precision);
                         else
                           plain = end;
                       }),
                0)
          << precision;
    }
  }
}

TEST(DeviceGeneration, GreedyAndBeamsGiveTransformersTokens) {
  for (const char* name : {"gpt2", "llama"}) {
    const ReferenceCases cases = read_reference_cases(name);
    const auto got = generate_in({}, cases.folder, cases.jobs, {"comm.backend=" + checked_backend()});
    ASSERT_EQ(got.size(), cases.jobs.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(tokens_of(got[i]), cases.tokens[i]) << name << ", " << cases.jobs[i].name;
  }
}

TEST(DeviceGeneration, DrawsAreTheCpus) {
  const std::vector<TokenIds> prompts = {{5, 17, 42, 8, 99}, {7}};
  const GenerationJob sampled{
      "sampled", prompts, {.max_new_tokens = 12, .sample = true, .temperature = 0.9, .top_k = 60, .seed = 3}};
  const auto cpu = generate_in({}, golden_model("llama"), {sampled}, {"comm.backend=local"});
  const auto device = generate_in({}, golden_model("llama"), {sampled}, {"comm.backend=" + checked_backend()});
  EXPECT_EQ(tokens_of(cpu.at(0)), tokens_of(device.at(0)));
}

}  // namespace
}  // namespace gantry::testing
