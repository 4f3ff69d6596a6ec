// Distillation with hidden_weight: a student of another hidden size learns a projection, in every layout.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "program.h"
#include "student_steps.h"
#include "thrown_by.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kProjection = "hidden_projection.weight";
constexpr double kWeight = 3;

std::string describe_hidden(const StudentRun& run) {
  return fmt::format("pp {} dp {} tp {} cp {}, sequence {}, zero {}, {}, microbatches {}, calls {}, own teacher {}",
                     run.layout.pipeline, run.layout.data, run.layout.tensor, run.layout.context, run.sequence_parallel,
                     run.zero, run.schedule, run.microbatches, run.calls, run.teacher.has_value());
}

// Runs with several calls per step know the loss of the last call only.
void expect_hidden_steps_of_one_rank(StudentRun alone, const std::vector<StudentRun>& runs) {
  alone.hidden_weight = kWeight;
  const auto expected = steps_of_student(alone);
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_GT(std::abs(expected[1].loss - expected[0].loss), 1e-4);
  for (StudentRun run : runs) {
    run.hidden_weight = kWeight;
    run.hidden_size = alone.hidden_size;
    run.lora = alone.lora;
    SCOPED_TRACE(describe_hidden(run));
    const auto steps = steps_of_student(run);
    ASSERT_EQ(steps.size(), expected.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(i);
      if (run.calls == 1) {
        EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-10);
      }
      EXPECT_NEAR(steps[i].norm, expected[i].norm, 1e-10);
      gantry::testing::expect_close(expected[i].gradients, steps[i].gradients);
      gantry::testing::expect_close(expected[i].weights, steps[i].weights);
    }
  }
}

std::vector<StudentRun> layouts_of_student() {
  return {
      {.layout = {.tensor = 2}, .microbatches = 2},
      {.layout = {.tensor = 4}, .sequence_parallel = true},
      {.layout = {.pipeline = 2, .tensor = 2}, .microbatches = 2, .sequence_parallel = true, .schedule = "zb_h1"},
      {.layout = {.pipeline = 2, .data = 2}, .samples = {1, 4}, .microbatches = 2, .zero = 1},
      {.layout = {.data = 2, .tensor = 2}, .samples = {5, 0}, .microbatches = 2, .zero = 3},
      {.layout = {.data = 2, .tensor = 2}, .samples = {3, 2}, .sequence_parallel = true, .zero = 2},
      {.layout = {.tensor = 2, .context = 2}, .sequence_parallel = true},
      {.layout = {.context = 2}, .calls = 2},
      {.layout = {.data = 2}, .samples = {3, 2}, .zero = 1, .calls = 2},
      {.layout = {.data = 2}, .teacher = TeacherParallelConfig{.tensor = 2}, .samples = {3, 2}, .zero = 3},
      {.layout = {.pipeline = 2, .tensor = 2}, .teacher = TeacherParallelConfig{.tensor = 4}, .microbatches = 2},
      {.layout = {.tensor = 2, .context = 2},
       .teacher = TeacherParallelConfig{.pipeline = 2},
       .sequence_parallel = true},
      {.layout = {.data = 4},
       .teacher = TeacherParallelConfig{.tensor = 2},
       .samples = {2, 0, 1, 2},
       .microbatches = 2},
  };
}

TEST(HiddenStates, AProjectionIsTrainedInEveryLayout) {
  const auto steps = steps_of_student({.hidden_weight = kWeight}, 1);
  const torch::Tensor gradient = steps.at(0).gradients.at(kProjection);
  EXPECT_EQ(gradient.sizes(), (std::vector<std::int64_t>{24, 16}));
  EXPECT_GT(gradient.abs().max().item<double>(), 1e-4);
  expect_hidden_steps_of_one_rank({}, layouts_of_student());
}

TEST(HiddenStates, OfOneSizeAreComparedWithoutAProjection) {
  const auto steps = steps_of_student({.hidden_weight = kWeight, .hidden_size = 24}, 1);
  EXPECT_FALSE(steps.at(0).gradients.contains(kProjection));
  const auto without = steps_of_student({.hidden_size = 24}, 1);
  EXPECT_GT(steps.at(0).loss, without.at(0).loss + 0.1);
  expect_hidden_steps_of_one_rank({.hidden_size = 24}, layouts_of_student());
}

TEST(HiddenStates, AProjectionIsTrainedWithAdapters) {
  StudentRun run{.lora = {.r = 2, .alpha = 4, .target_modules = {"all-linear"}}};
  run.hidden_weight = kWeight;
  const auto steps = steps_of_student(run);
  EXPECT_GT(steps.at(0).gradients.at(kProjection).abs().max().item<double>(), 1e-4);
  EXPECT_FALSE(steps.at(0).weights.at(kProjection).equal(steps.at(1).weights.at(kProjection)));
  for (const auto& [name, gradient] : steps.at(0).gradients)
    EXPECT_TRUE(name == kProjection || name.find("lora") != std::string::npos) << name;
  expect_hidden_steps_of_one_rank(run, {{.layout = {.tensor = 2}, .sequence_parallel = true},
                                        {.layout = {.pipeline = 2, .data = 2}, .samples = {3, 2}, .zero = 1}});
}

void save_student(StudentRig& rig, const std::string& folder, const Config& config) {
  rig.boosted.optimizer->wait();
  save_checkpoint({.directory = folder,
                   .step = 2,
                   .config_text = config.to_yaml(),
                   .model_config = nlohmann::json::parse(config.model.config_json),
                   .policy = config.model.policy},
                  rig.plugin().state(rig.boosted), rig.booster.mesh());
}

TEST(HiddenStates, ARunGoesOnToTheSameBits) {
  for (const StudentRun& layout : {StudentRun{.layout = {.pipeline = 2, .tensor = 2}, .microbatches = 2},
                                   StudentRun{.layout = {.data = 2, .tensor = 2}, .samples = {3, 2}, .zero = 3}}) {
    StudentRun run = layout;
    run.hidden_weight = kWeight;
    const Config config = config_of_student(run);
    const ScratchFolder scratch;
    const auto whole = steps_of_student(run, 4);
    steps_of_student(run, 2, {}, [&](StudentRig& rig) { save_student(rig, scratch.path(), config); });
    const auto resume = [&](StudentRig& rig) {
      load_checkpoint(scratch / "step-000002", rig.plugin().state(rig.boosted), rig.booster.mesh());
    };
    const auto rest = steps_of_student(run, 2, resume);
    ASSERT_EQ(rest.size(), 2u);
    for (const std::size_t step : {0, 1}) {
      EXPECT_EQ(rest[step].loss, whole[step + 2].loss);
      for (const auto& [name, values] : whole[step + 2].weights)
        EXPECT_TRUE(values.equal(rest[step].weights.at(name))) << name;
    }
    EXPECT_TRUE(read_checkpoint_tensors(scratch / "step-000002", "optimizer.exp_avg").contains(kProjection));
    StudentRun other{.layout = {.context = 2}, .hidden_weight = kWeight};
    const auto elsewhere = steps_of_student(other, 1, resume);
    EXPECT_NEAR(elsewhere.at(0).loss, whole[2].loss, 1e-10);
  }
}

TEST(HiddenStates, ExportsAndOtherModelsLeaveTheProjectionOut) {
  const StudentRun run{.hidden_weight = kWeight}, without{};
  const Config config = config_of_student(run);
  const ScratchFolder scratch;
  const auto steps = steps_of_student(run, 2, {}, [&](StudentRig& rig) { save_student(rig, scratch.path(), config); });
  const std::string folder = scratch / "step-000002";
  EXPECT_TRUE(read_checkpoint_tensors(folder, "model").contains(kProjection));
  export_checkpoint(folder, scratch / "exported", {});
  const TensorDict exported = read_safetensors(scratch / "exported/model.safetensors");
  EXPECT_TRUE(exported.contains("lm_head.weight"));
  EXPECT_FALSE(exported.contains(kProjection));
  steps_of_student(without, 0, [&](StudentRig& rig) {
    load_checkpoint(folder, rig.plugin().state(rig.boosted), rig.booster.mesh());
    for (const auto& [name, values] : rig.weights()) EXPECT_TRUE(values.equal(steps.back().weights.at(name))) << name;
  });
}

TEST(HiddenStates, RefusesModelsThatDoNotReturnThem) {
  Config config = config_of_student({.hidden_weight = kWeight});
  config.train.objective.teacher = GANTRY_SOURCE_DIR "/tests/golden/bert";
  EXPECT_THAT(thrown_by<ConfigError>([&] { build_model(config); }),
              HasSubstr("train.objective.teacher: the size of the hidden states of "));
  Config labels = config_of_student({.hidden_weight = kWeight});
  labels.model.config_json.insert(1, R"("architectures": ["LlamaForSequenceClassification"], "num_labels": 2, )");
  EXPECT_THAT(thrown_by<ConfigError>([&] { build_model(labels); }),
              HasSubstr("train.objective.hidden_weight: the student does not return its hidden states"));
}

}  // namespace
}  // namespace gantry::testing
