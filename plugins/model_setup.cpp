#include "gantry/plugins/model_setup.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <typeinfo>

#include <c10/util/Type.h>
#include <torch/optim/lbfgs.h>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/core/sharding/zero_level.h"
#include "gantry/nn/linear.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/optimizers/ready_hooks.h"
#include "gantry/schedule/stages/layers_per_stage.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The pipeline ranks that hold the same elements of a parameter, ascending. Empty if each has a different
// part.
std::vector<int> pipeline_ranks(const Placement& placement, const PipelineStageManager& stages) {
  std::set<int> ranks;
  if (placement.along(axis::kPipeline).sharded()) return {};
  for (const int stage : placement.stages) ranks.insert(stages.rank_of(stage));
  return {ranks.begin(), ranks.end()};
}

}  // namespace

void refuse_used_optimizer(torch::optim::Optimizer* optimizer) {
  if (!optimizer) return;
  forget_initial_state(*optimizer);
  if (!optimizer->state().empty()) {
    throw UsageError({"boost",
                      fmt::format("the optimizer already has state for {} parameters", optimizer->state().size()),
                      "an optimizer that has not taken a step",
                      "call boost() before the first step, and load a checkpoint after boost()"});
  }
}

void synchronise_initial_weights(torch::nn::Module& model, const ProcessGroupMesh& mesh) {
  const torch::NoGradGuard no_grad;
  ProcessGroup& world = mesh.world_group();
  auto share = [&](const torch::Tensor& tensor) {
    if (!tensor.defined() || is_deferred(tensor)) return;
    torch::Tensor data = tensor.detach();
    world.broadcast(data, 0).wait();
  };
  for (auto& parameter : model.parameters()) share(parameter);
  for (auto& buffer : model.buffers()) share(buffer);
}

std::vector<int> chosen_layers(const ScheduleOptions& config, const Policy& policy, const torch::nn::Module& model,
                               const PipelineStageManager& stages, bool shares_vocabulary) {
  const auto* name = std::get_if<std::string>(&config.layers);
  const LayerWork stated = policy.split(model).work.value_or(LayerWork());
  if (name && *name == "default" && stated.mtp == 0) return {};  // by the policy
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages.num_stages(); ++stage) rank_of_stage.push_back(stages.rank_of(stage));
  if (!is_balanced(config)) return layers_per_stage(config, stated, rank_of_stage);
  LayerWork work = work_of(policy.split(model), model);
  if (shares_vocabulary) work.first = work.last = 0;  // all ranks compute these
  if (const int layers = layer_count(policy, model); static_cast<int>(work.layers.size()) != layers) {
    std::vector<std::string> paths;
    for (const auto& list : layer_lists(policy, model)) paths.push_back("'" + list.path + "'");
    throw ConfigError({policy.name() + "::split",
                       fmt::format("it states the work of {} layers, but {} has {}", work.layers.size(),
                                   fmt::join(paths, " with "), layers),
                       "the work of every layer", ""});
  }
  return layers_per_stage(config, work, rank_of_stage);
}

GradientSum gradient_sum_of(Loop loop) { return loop == Loop::kOwn ? GradientSum::kInBackward : GradientSum::kAtSync; }

SplitOutputs bind_split_outputs(torch::nn::Module& model, const std::vector<SplitOutput>& outputs, bool keep_split,
                                ProcessGroup& tensor_group) {
  SplitOutputs split;
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const auto& [output, path] : outputs) {
    const auto* found = modules.find(path);
    auto* linear = found ? dynamic_cast<nn::LinearImpl*>(found->get()) : nullptr;
    if (!linear) {
      throw ConfigError(
          {path,
           "the module is not a gantry::nn::Linear, but the policy's split states that it computes output '" + output +
               "'",
           "", "name the output layer in ModelSplit::split_outputs"});
    }
    if (keep_split) {
      split.emplace(output, SplitDim{&tensor_group, linear->weight_placement()});
    } else {
      linear->set_gather_output(true);
      split.emplace(output, SplitDim{&tensor_group, replicate()});
    }
  }
  return split;
}

void refuse_other_precision(const PrecisionOptions& precision, const std::optional<torch::ScalarType>& held) {
  if (!precision.parameters || !held || *held == *precision.parameters) return;
  throw ConfigError({"precision",
                     fmt::format("the value is {}, but the model's parameters are {}",
                                 dtype_name(*precision.parameters), dtype_name(*held)),
                     "a model in that precision", "call gantry::set_dtype(*model, ...) before boost()"});
}

bool has_adapters(const StageModule& module) {
  return std::ranges::any_of(module.all_placements,
                             [](const Placement& placement) { return is_adapter(placement.name); });
}

bool has_adapters(const torch::nn::Module& model) {
  const auto parameters = model.named_parameters();
  return std::ranges::any_of(parameters, [](const auto& item) { return is_adapter(item.key()); });
}

std::vector<SharedGradient> make_shared_groups(const StageModule& module, const PipelineStageManager& stages,
                                               const ProcessGroupMesh& mesh,
                                               std::vector<std::unique_ptr<ProcessGroup>>& groups) {
  std::set<std::vector<int>> distinct;
  for (const auto& placement : module.all_placements)
    if (auto ranks = pipeline_ranks(placement, stages); ranks.size() > 1) distinct.insert(ranks);

  std::vector<SharedGradient> shared;
  for (const auto& ranks : distinct) {
    std::vector<std::vector<int>> rank_sets;
    for (const auto& pipeline : mesh.mesh().groups({axis::kPipeline})) {
      std::vector<int> members;
      for (const int rank : ranks) members.push_back(pipeline[rank]);
      std::sort(members.begin(), members.end());
      rank_sets.push_back(members);
    }
    for (auto& group : mesh.make_groups("shared parameter", rank_sets)) {
      if (!group) continue;
      for (std::size_t i = 0; i < module.parameters.size(); ++i)
        if (pipeline_ranks(module.parameters[i].placement, stages) == ranks) shared.push_back({i, group.get()});
      groups.push_back(std::move(group));
    }
  }
  return shared;
}

void keep_held_parameters(torch::optim::Optimizer& optimizer, const StageModule& module) {
  std::set<void*> held;
  for (const auto& parameter : module.parameters) held.insert(parameter.tensor.unsafeGetTensorImpl());
  std::set<void*> seen;  // a tied parameter appears once per name
  for (auto& group : optimizer.param_groups()) {
    auto& parameters = group.params();
    std::erase_if(parameters, [&](const torch::Tensor& parameter) {
      if (held.contains(parameter.unsafeGetTensorImpl())) return !seen.insert(parameter.unsafeGetTensorImpl()).second;
      if (parameter.numel() > 0) {
        throw ConfigError(
            {"boost", "the optimizer has a parameter of shape " + describe(parameter) + " that the model does not have",
             "", "create the optimizer with this model's parameters()"});
      }
      return true;
    });
  }
}

void refuse_unknown_optimizer(const torch::optim::Optimizer& optimizer, const ParallelOptions& options,
                              const ProcessGroupMesh& mesh) {
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer))
    throw UsageError({"boost",
                      "LBFGS is not supported, because its step computes the loss several times by a closure and takes "
                      "inner products over all parameters at once",
                      "an optimizer that steps once per backward", "use another optimizer"});
  if (options.update.is_saved && !is_saved_optimizer(optimizer)) refuse_unsaved_optimizer(optimizer, "boost");
  const bool shards_states = options.zero.stage > 0 && mesh.batch_group().size() > 1;
  if (mesh.size(axis::kTensor) == 1 && !mesh.mesh().has_expert_view() && !shards_states) return;
  if (is_known_optimizer(optimizer)) return;
  throw UsageError(
      {"boost",
       "the step of an optimizer of the class " + c10::demangle(typeid(optimizer).name()) +
           " may need full parameters, for example for their norms, but ranks hold shards",
       "Adam, AdamW, SGD, RMSprop, Adagrad, Lion, Muon, Adafactor, AdamW8bit, AdamWBf16 or a gantry::StatefulOptimizer",
       "derive its class from gantry::StatefulOptimizer and override unit(), or train without "
       "parallel.tensor, parallel.expert and parallel.zero"});
}

std::shared_ptr<BoostedOptimizer> boost_optimizer(const BoostRequest& request,
                                                  const std::vector<HeldTensor>& parameters,
                                                  std::vector<SharedGradient> shared, const ParallelOptions& options,
                                                  const ProcessGroupMesh& mesh, const PipelineStageManager& stages,
                                                  const ParameterShards* shards) {
  refuse_unknown_optimizer(*request.optimizer, options, mesh);
  const auto gradients = std::make_shared<GradientBuffers>(
      parameters, std::move(shared), mesh,
      GradientOptions{.shards = shards,
                      .bucket_bytes = static_cast<std::int64_t>(options.zero.bucket_mb * (1 << 20)),
                      .zero = options.zero.stage,
                      .overlaps = gradient_sum_of(request.loop)});
  report_ready_gradients(gradients);
  std::unique_ptr<MasterParameters> masters;
  if (MasterParameters::needed(*request.optimizer, parameters, zero_level(options.zero.stage).states || shards))
    masters = std::make_unique<MasterParameters>(*request.optimizer, *gradients, mesh);
  const StepRules rules{.lr_schedule = request.lr_schedule,
                        .clip_grad_norm = options.update.clip_grad_norm,
                        .skip_non_finite = options.update.skip_non_finite,
                        .scaled = options.precision.loss_scale,
                        .ema = options.update.ema,
                        .waits = request.loop == Loop::kOwn};
  return std::make_shared<BoostedOptimizer>(request.optimizer, gradients, std::move(masters), mesh, stages.stages(),
                                            rules);
}

EvaluationGuard::EvaluationGuard(torch::nn::Module& module, bool on) {
  if (!on) return;
  module_ = &module;
  was_training_ = module.is_training();
  for (const auto& each : module.modules(/*include_self=*/false)) inner_.emplace_back(each, each->is_training());
  module.eval();
}

EvaluationGuard::~EvaluationGuard() {
  if (!module_) return;
  // train() also sets the children of a module, which come after it.
  module_->train(was_training_);
  for (const auto& [module, training] : inner_)
    if (module->is_training() != training) module->train(training);
}

}  // namespace gantry
