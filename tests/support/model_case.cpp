#include "model_case.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "case_batch.h"
#include "gantry/booster/recipe.h"
#include "gantry/core/config/schedule_names.h"
#include "gantry/launch/launch.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

Config config_of(const ModelCase& what, const Parallelism& how) {
  Config config = layout_config(how.layout);
  config.model.policy = what.family;
  config.model.config_json = config_keys(what);
  config.parallel.sequence_parallel = how.sequence_parallel;
  config.schedule.name = how.schedule;
  config.schedule.microbatches = how.microbatches;
  config.schedule.chunks = how.chunks;
  config.schedule.recompute = how.recompute;
  config.schedule.layers = how.layers;
  config.schedule.recompute_layers = how.recompute_layers;
  config.parallel.tensor_overlap = how.tensor_overlap;
  config.parallel.zero = how.zero;
  config.parallel.shard = how.shard;
  config.parallel.gather = how.gather;
  config.parallel.context_method = how.context_method;
  config.parallel.vocabulary = how.vocabulary;
  config.schedule.vocabulary_algorithm = how.vocabulary_algorithm;
  config.experts = what.experts;
  config.experts.dispatch = how.dispatch;
  config.train.offload = how.offload;
  config.precision = what.precision;
  // Gradient accumulation divides by the labels of its first call. With few labels, the default loss scale
  // overflows float16.
  if (what.irregular) config.loss_scale.initial = 4096;
  config.optimizer.name = what.optimizer;
  config.optimizer.lr = what.lr;
  config.optimizer.clip_grad_norm = what.clip;
  config.train.seed = 7;
  return config;
}

// Truncates the batch to its longest sample, up to the last label.
Batch without_padding(Batch batch) {
  const torch::Tensor counted = (batch.tensors.at("labels") != -100).any(0);
  std::int64_t length = counted.numel();
  while (length > 1 && !counted[length - 1].item<bool>()) --length;
  for (const char* name : {"input_ids", "labels"})
    batch.tensors.set(name, batch.tensors.at(name).narrow(1, 0, length).contiguous());
  return batch;
}

// Runs a step's batch in `how.accumulation` parts. Returns the mean loss over all counted tokens. Added
// losses and expert loads go to `of`.
double run_step(const ModelCase& what, std::size_t step, const Parallelism& how, Booster& booster, Boosted& boosted,
                const ProcessGroupMesh& mesh, CaseResult& of) {
  auto& added = of.added.emplace_back();
  auto& loads = of.loads.emplace_back();
  const Batch full = make_batch(full_batch(what, step));
  double sum = 0, tokens = 0;
  const auto execute = [&](const Batch& part) {
    Batch mine = replica_part(part, mesh.size("dp"), mesh.coordinate("dp"));
    if (reads_pictures(what.family)) mine.tensors = without_unused_pictures(what, std::move(mine.tensors));
    return booster.execute_pipeline(what.irregular ? without_padding(mine) : mine, boosted, {.broadcast_loss = true});
  };
  if (what.irregular) {
    const auto no_sync = booster.no_sync();
    execute(make_batch(full_batch(what, 0)));
    boosted.optimizer->zero_grad();
  }
  auto add = [&](const Batch& part) {
    const auto done = execute(part);
    for (const auto& [name, mean] : done.added_losses) added[name] += mean * static_cast<double>(done.tokens);
    sum += *done.loss * static_cast<double>(done.tokens);
    tokens += static_cast<double>(done.tokens);
    loads = done.experts;
  };
  if (how.accumulation == 1) {
    add(full);
  } else {
    {
      const auto no_sync = booster.no_sync();
      for (const auto& [begin, end] : split_evenly(full.samples, how.accumulation)) {
        Batch part = slice(full, begin, end);
        part.first_sample = 0;
        add(part);
      }
    }
    booster.sync_gradients(boosted);
  }
  return tokens > 0 ? sum / tokens : 0;
}

// Expects that the replicas of each parameter are bitwise identical: over dp, over tp if it is not sharded
// over tp, and over edp for experts.
void expect_replicas_identical(const StageModule& module, const ProcessGroupMesh& mesh, const std::string& label) {
  for (const auto& [placement, tensor] : module.parameters)
    for (const char* axis : {"dp", "tp", "edp"}) {
      if (!axis::is_in(axis, placement.view) || (placement.view == axis::View::kDense && axis == std::string("edp")))
        continue;
      if (placement.along(axis).sharded()) continue;
      torch::Tensor largest = tensor.detach().clone();
      mesh[axis].all_reduce(largest, ReduceOp::kMax).wait();
      EXPECT_TRUE(torch::equal(largest, tensor))
          << label << " replicas over " << axis << " differ in " << placement.name;
    }
}

Criterion criterion_of(const ModelCase& what, const Parallelism& how, const Config& config) {
  const nn::CrossEntropyOptions options{.label_smoothing = what.smoothing, .z_loss = what.z_loss};
  const bool is_plain = what.smoothing == 0 && what.z_loss == 0;
  Criterion criterion = what.causal_labels ? causal_cross_entropy(options)
                        : is_plain         ? build_criterion(config)
                                           : cross_entropy(options);
  if (how.logit_limit > 0) criterion.set_logit_limit(how.logit_limit);
  return criterion;
}

}  // namespace

std::string describe(const Parallelism& how) {
  return how.schedule + (how.sequence_parallel ? " sequence parallel" : "") +
         (how.recompute == "none" ? "" : " recompute " + how.recompute) +
         (how.chunks == 1 ? "" : " chunks " + std::to_string(how.chunks)) + " tp " + std::to_string(how.layout.tensor) +
         " pp " + std::to_string(how.layout.pipeline) + " dp " + std::to_string(how.layout.data) + " m " +
         std::to_string(how.microbatches) +
         (how.layout.context > 1 ? " cp " + std::to_string(how.layout.context) + " " + how.context_method : "") +
         (how.vocabulary == "stages" ? "" : " vocabulary " + how.vocabulary) +
         (how.vocabulary_algorithm == 2 ? "" : " algorithm 1") +
         (how.tensor_overlap == 1 ? "" : " pieces " + std::to_string(how.tensor_overlap)) +
         (how.layout.expert > 1 ? " ep " + std::to_string(how.layout.expert) + " " + how.dispatch : "") +
         (how.zero ? " zero " + std::to_string(how.zero) : "") +
         (how.zero == 3 ? " gather " + how.gather + (how.shard ? " shard " + std::to_string(how.shard) : "") : "") +
         (how.offload == "none" ? "" : " offload " + how.offload) + (how.logit_limit > 0 ? " deferred logits" : "") +
         (how.accumulation > 1 ? " accumulation " + std::to_string(how.accumulation) : "") +
         (how.layers == "default" ? "" : " layers " + how.layers);
}

CaseResult run_case(const ModelCase& what, const Parallelism& how, const std::string& backend) {
  Config config = config_of(what, how);
  config.comm.backend = backend;
  config.comm.threads_per_rank = 1;
  CaseResult result;
  const StartRanks start = backend == "auto" ? start_ranks() : launch;
  const int code = start(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    const auto& mesh = plugin->mesh();
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), criterion_of(what, how, config));
    boosted.model->train();
    CaseResult mine;
    auto& gradients = boosted.optimizer->gradients();
    for (std::size_t step = 0; step < what.batches.size(); ++step) {
      mine.losses.push_back(run_step(what, step, how, booster, boosted, mesh, mine));
      mine.norms.push_back(boosted.optimizer->grad_norm());
      gradients.complete();
      if (step + 1 == what.batches.size())
        mine.gradients = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                        [&](std::size_t i) { return gradients.gradient(i); });
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    boosted.optimizer->wait();
    expect_replicas_identical(boosted.model->stage_module(), mesh, describe(how));
    mine.weights = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                  [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
    for (TensorDict* tensors : {&mine.gradients, &mine.weights})
      for (const auto& [name, tensor] : *tensors) tensors->set(name, tensor.cpu());
    const std::string on = world.backend().name();
    const bool processes = on == "mpi" || on == "tcp" || on == "ipc";
    if (processes || world.is_main()) result = std::move(mine);
  });
  EXPECT_EQ(code, 0) << describe(how);
  return result;
}

void expect_layouts_equal(const ModelCase& what, const std::vector<Parallelism>& layouts) {
  constexpr double kTolerance = 1e-10;
  const CaseResult expected = run_case(what, {}, "local");
  for (const auto& how : layouts_to_run(layouts)) {
    expect_equal(expected, run_case(what, how), kTolerance, what.family + " " + describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<Parallelism> mixed_layouts() {
  return {{.layout = {.tensor = 2}, .microbatches = 2},
          {.layout = {.pipeline = 2, .data = 2}, .microbatches = 2, .recompute = "full"},
          {.layout = {.pipeline = 3, .tensor = 2},
           .schedule = "zb_h1",
           .microbatches = 3,
           .sequence_parallel = true,
           .recompute = "selective"},
          {.layout = {.tensor = 3}, .sequence_parallel = true}};
}

std::vector<Parallelism> layout_grid(const LayoutAxes& axes) {
  enum Axis : std::size_t { kTensor, kPipeline, kData, kSchedule, kMicrobatches, kAccumulation, kZero, kSequence };
  const auto has_effect = [&](const GridRow& row, std::size_t axis) {
    if (axis == kSchedule) return axes.pipeline[row[kPipeline]] > 1;
    if (axis == kZero) return axes.zero[row[kZero]] == 0 || axes.data[row[kData]] > 1;
    if (axis == kSequence) return axes.tensor[row[kTensor]] > 1;
    return true;
  };
  std::vector<Parallelism> layouts;
  for (const GridRow& row :
       grid_rows({axes.tensor.size(), axes.pipeline.size(), axes.data.size(), axes.schedules.size(),
                  axes.microbatches.size(), axes.accumulation.size(), axes.zero.size(), axes.sequence_parallel.size()},
                 has_effect))
    layouts.push_back({.layout = {.pipeline = axes.pipeline[row[kPipeline]],
                                  .data = axes.data[row[kData]],
                                  .tensor = axes.tensor[row[kTensor]]},
                       .schedule = axes.schedules[row[kSchedule]],
                       .microbatches = axes.microbatches[row[kMicrobatches]],
                       .sequence_parallel = axes.sequence_parallel[row[kSequence]],
                       .chunks = axes.schedules[row[kSchedule]] == "interleaved_1f1b"
                                     ? 2
                                     : default_chunks(axes.schedules[row[kSchedule]]),
                       .zero = axes.zero[row[kZero]],
                       .accumulation = axes.accumulation[row[kAccumulation]]});
  return layouts;
}

}  // namespace gantry::testing
