// Steps of a student with a teacher, in any layout of the two.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>

#include "gantry/booster/recipe.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/teacher.h"
#include "ranks.h"

namespace gantry::testing {

constexpr std::int64_t kSamples = 5, kLongest = 12;

struct StudentRun {
  Layout layout;
  std::optional<TeacherParallelConfig> teacher;
  std::vector<std::int64_t> samples = {kSamples};  // by replica
  int microbatches = 1;
  bool sequence_parallel = false;
  int zero = 0;
  std::string schedule = "1f1b";
  int calls = 1;             // calls of execute_pipeline per step
  double hidden_weight = 0;  // the hidden size of the teacher is 24
  int hidden_size = 16;
  LoraConfig lora = {};
};

inline Config config_of_student(const StudentRun& run) {
  Config config = layout_config(run.layout);
  config.model.policy = "llama";
  config.model.config_json = fmt::format(
      R"({{"vocab_size": 61, "hidden_size": {}, "intermediate_size": 24, "num_hidden_layers": 4,
          "num_attention_heads": 4, "max_position_embeddings": 32}})",
      run.hidden_size);
  config.precision = "float64";
  config.optimizer.lr = 0.02;
  config.optimizer.eps = 1e-3;  // so that rounding does not decide the update where a gradient is zero
  config.optimizer.weight_decay = 0.1;
  config.optimizer.clip_grad_norm = 0.5;
  config.schedule.name = run.schedule;
  config.schedule.microbatches = run.microbatches;
  config.parallel.sequence_parallel = run.sequence_parallel;
  config.parallel.zero = run.zero;
  config.lora = run.lora;
  config.train.objective = {.name = "distill",
                            .loss_type = "forward",
                            .teacher = GANTRY_SOURCE_DIR "/tests/golden/distillation/forward/teacher",
                            .teacher_parallel = run.teacher,
                            .temperature = 2,
                            .alpha = 0.3,
                            .hidden_weight = run.hidden_weight};
  return resolve_model(config);
}

// Samples of different lengths; the tokens of the padding have no labels.
inline TensorDict samples_of_student() {
  const torch::Tensor index = torch::arange(kSamples * kLongest).view({kSamples, kLongest});
  const torch::Tensor ids = (7 * index * index + 3 * index) % 61;  // rank threads would share a random generator
  torch::Tensor labels = torch::roll(ids, -1, 1).clone();
  const std::vector<std::int64_t> lengths = {7, 12, 8, 9, 6};
  for (std::int64_t sample = 0; sample < kSamples; ++sample)
    labels[sample].slice(0, lengths[static_cast<std::size_t>(sample)] - 1).fill_(-100);
  return {{"input_ids", ids}, {"labels", labels}};
}

// The replica's samples, without the tokens that are padding in all of them.
inline Batch batch_of_replica(const StudentRun& run, const ProcessGroupMesh& mesh, const PipelineStageManager& stages) {
  const auto replica = static_cast<std::size_t>(mesh.coordinate("dp"));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < replica; ++i) begin += run.samples[i];
  Batch batch = slice(make_batch(samples_of_student()), begin, begin + run.samples[replica]);
  const torch::Tensor has_label = (batch.tensors.at("labels") != -100).any(0);
  const std::int64_t tokens = batch.samples == 0 ? 4 : has_label.nonzero().max().item<std::int64_t>() + 2;
  const bool reads = stages.holds_first() || stages.holds_last();  // as a loader does
  for (auto& [name, tensor] : batch.tensors) {
    tensor = tensor.slice(1, 0, tokens).contiguous();
    if (!reads) tensor = tensor.to(torch::kMeta);
  }
  batch.first_sample = 0;
  return batch;
}

// A student and its teacher on one rank.
class StudentRig {
 public:
  StudentRig(const StudentRun& run, const Config& config, World& world)
      : run_(run), booster(std::make_unique<HybridParallelPlugin>(world, config)) {
    const auto model = build_model(config);
    const ObjectiveParts parts = objective_parts(config.train.objective);
    boosted = booster.boost(model, build_optimizer(config, *model), build_criterion(config, parts));
    teacher_ = std::make_unique<Teacher>(config, world, booster, boosted, parts.teacher);
  }

  // Returns the loss of the step, or of its last call.
  double accumulate() {
    const Batch all = batch_of_replica(run_, booster.mesh(), plugin().stages());
    if (run_.calls == 1) return accumulate(all);
    double loss = 0;
    for (const auto& [begin, end] : split_evenly(all.samples, run_.calls)) {
      std::unique_ptr<Booster::NoSync> guard;
      if (end < all.samples) guard.reset(new Booster::NoSync(booster.no_sync()));
      Batch part = slice(all, begin, end);
      part.first_sample = 0;
      loss = accumulate(part);
    }
    return loss;
  }

  TensorDict gradients() {
    boosted.optimizer->gradients().complete();
    return gathered([&](std::size_t i) {
      const torch::Tensor gradient = boosted.optimizer->gradients().gradient(i);
      return gradient.defined() ? gradient.clone() : gradient;
    });
  }
  TensorDict weights() {
    boosted.optimizer->wait();
    return gathered([&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
  }
  void step() {
    boosted.optimizer->step();
    boosted.optimizer->zero_grad();
  }
  HybridParallelPlugin& plugin() { return dynamic_cast<HybridParallelPlugin&>(booster.plugin()); }

 private:
  double accumulate(const Batch& batch) {
    return *booster.execute_pipeline(teacher_->prepare(batch), boosted, {.broadcast_loss = true}).loss;
  }
  TensorDict gathered(const std::function<torch::Tensor(std::size_t)>& local) {
    return gather_tensors(boosted.model->stage_module(), booster.plugin().stages(), booster.mesh(), local);
  }

  StudentRun run_;

 public:
  Booster booster;
  Boosted boosted;

 private:
  std::unique_ptr<Teacher> teacher_;
};

struct StudentStep {
  double loss = 0, norm = 0;
  TensorDict gradients, weights;  // the weights after the step
};

using RigCall = std::function<void(StudentRig&)>;

inline std::vector<StudentStep> steps_of_student(const StudentRun& run, int count = 2, const RigCall& before = {},
                                                 const RigCall& after = {}) {
  std::vector<StudentStep> steps;
  const Config config = config_of_student(run);
  const int code = start_ranks()(config, [&](World& world) {
    StudentRig rig(run, config, world);
    if (before) before(rig);
    for (int step = 0; step < count; ++step) {
      StudentStep one{.loss = rig.accumulate(), .norm = rig.boosted.optimizer->grad_norm()};
      one.gradients = rig.gradients();
      rig.step();
      one.weights = rig.weights();
      if (world.is_main()) steps.push_back(std::move(one));
    }
    if (after) after(rig);
  });
  EXPECT_EQ(code, 0);
  return steps;
}

}  // namespace gantry::testing
