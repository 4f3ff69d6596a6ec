#include "gantry/policies/sharder.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>
#include <numeric>

#include "gantry/core/sharding/row_shards.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/linear.h"
#include "gantry/policies/apply_plan.h"
#include "gantry/policies/model_map.h"
#include "gantry/policies/stage_contents.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/quantized_weight.h"

namespace gantry {
namespace {

// Models that were already sharded. Guarded by the mutex, because rank threads shard their models at the same
// time.
class SplitModels {
 public:
  void add(const std::shared_ptr<torch::nn::Module>& model) {
    const std::lock_guard lock(mutex_);
    std::erase_if(models_, [](const auto& known) { return known.expired(); });
    refuse_known(model);
    models_.push_back(model);
  }
  void refuse(const std::shared_ptr<torch::nn::Module>& model) {
    const std::lock_guard lock(mutex_);
    refuse_known(model);
  }

 private:
  void refuse_known(const std::shared_ptr<torch::nn::Module>& model) const {
    for (const auto& known : models_)
      if (known.lock() == model)
        throw ConfigError({model->name(), "the model has already been sharded", "an unsharded model",
                           "build a new model for each boost()"});
  }
  std::mutex mutex_;
  std::vector<std::weak_ptr<torch::nn::Module>> models_;
};

SplitModels& split_models() {
  static SplitModels models;
  return models;
}

bool holds_any(const PipelineStageManager& manager, const std::vector<int>& stages) {
  return std::any_of(stages.begin(), stages.end(), [&](int stage) { return manager.holds(stage); });
}

// Returns the placement that was set under any of the tensor's names. Throws if they differ.
ParameterSplit tensor_placement(const NamedTensor& parameter, const Placements& placements) {
  const ParameterSplit* found = nullptr;
  for (const auto& name : parameter.names) {
    const auto place = placements.find(name);
    if (place == placements.end()) continue;
    if (found && !(*found == place->second))
      throw ConfigError({name, "the rules for it and for " + parameter.names.front() + " shard it in two ways",
                         "one way to shard a shared parameter", ""});
    found = &place->second;
  }
  if (found && parameter.names.size() > 1 &&
      std::any_of(parameter.names.begin(), parameter.names.end(),
                  [&](const std::string& name) { return !placements.contains(name); })) {
    throw ConfigError({parameter.names.front(), "the parameter is shared, but only one of its modules is sharded",
                       "one rule for each of them", "add the missing rule to the shard plan"});
  }
  return found ? *found : ParameterSplit();
}

Placement full_placement(const NamedTensor& parameter, const std::vector<int>& stages) {
  return {.name = parameter.names.front(),
          .global_shape = parameter.tensor.sizes().vec(),
          .shards = {},
          .stages = stages,
          .aliases = {parameter.names.begin() + 1, parameter.names.end()}};
}

bool is_of_vocabulary(const std::vector<std::string>& names, const VocabularyModules* vocabulary) {
  return vocabulary && std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return is_within(name, vocabulary->embedding) || is_within(name, vocabulary->head);
         });
}

void refuse_no_experts(const ShardPlan& plan, int ranks) {
  if (std::none_of(plan.begin(), plan.end(),
                   [](const ShardRule& rule) { return std::holds_alternative<Expert>(rule.style); }))
    throw ConfigError({"parallel.expert", fmt::format("the value is {}, but the model has no experts", ranks),
                       "1, or a shard plan with Expert{}", "remove parallel.expert"});
}

// Applies the plan, and writes the resulting shards into each parameter's placement.
void place_along_axes(std::vector<Placement>& all, const ModelMap& map, const ShardPlan& plan, const PlanAxes& axes) {
  const auto placements = apply_plan(map, plan, axes);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ParameterSplit split = tensor_placement(map.parameters[i], placements);
    all[i].view = split.view;
    all[i].shards = std::move(split.shards);
    all[i].partial_axes = std::move(split.partial_axes);
  }
}

void refuse_no_vocabulary(const StageModule& module) {
  if (module.split().vocabulary) return;
  throw ConfigError({"parallel.vocabulary",
                     "the value is pipeline, but " + module.policy().name() + "::split does not state the vocabulary",
                     "a described decoder, or a policy with ModelSplit::vocabulary", "remove parallel.vocabulary"});
}

// The weights that are stored as records of their rows, and the number of bytes per record on this rank.
// Called after sharding.
std::map<const void*, std::int64_t> record_bytes_of(const ModelMap& map) {
  std::map<const void*, std::int64_t> bytes;
  const auto add = [&](const torch::Tensor& weight, const std::optional<RowEncoding>& encoding) {
    if (encoding) bytes[weight.unsafeGetTensorImpl()] = encoding->record_bytes();
  };
  for (const auto& [path, module] : map.modules) {
    if (const auto* layer = dynamic_cast<const nn::LinearImpl*>(module.get())) add(layer->weight, layer->encoding());
    if (const auto* experts = dynamic_cast<const nn::ExpertsImpl*>(module.get())) {
      const auto [input, output] = experts->stacks();
      add(experts->gate_up_proj, experts->encoding(input));
      add(experts->down_proj, experts->encoding(output));
    }
  }
  return bytes;
}

}  // namespace

StageModule::StageModule(std::shared_ptr<torch::nn::Module> model, std::shared_ptr<const Policy> policy,
                         std::vector<LayerRange> ranges, ProcessGroup* sequence_group, bool vocabulary_apart)
    : model_(std::move(model)),
      policy_(std::move(policy)),
      split_(policy_->split(*model_)),
      ranges_(std::move(ranges)),
      lists_(layer_lists(*policy_, *model_)),
      sequence_group_(sequence_group),
      vocabulary_apart_(vocabulary_apart) {
  if (vocabulary_apart) refuse_no_vocabulary(*this);
  for (const auto& item : model_->named_parameters()) names_.emplace(item.value().unsafeGetTensorImpl(), item.key());
}

const Placement* StageModule::placement_of(const torch::Tensor& parameter) const {
  const auto name = names_.find(parameter.unsafeGetTensorImpl());
  if (name == names_.end()) return nullptr;
  for (const Placement& placement : all_placements)
    if (placement.name == name->second ||
        std::find(placement.aliases.begin(), placement.aliases.end(), name->second) != placement.aliases.end())
      return &placement;
  return nullptr;
}

TensorDict StageModule::forward(int stage, TensorDict input, StageContext::Settings settings) const {
  settings.sequence_group = sequence_group_;
  settings.tensor_group = tensor_group;
  settings.vocabulary_apart = vocabulary_apart_;
  for (const auto& list : lists_) settings.lists.push_back(static_cast<int>(list.layers.size()));
  const Recomputation recomputation = settings.recomputation;
  const LayerRange range = ranges_.at(stage);
  // Shared, because recomputation keeps a reference.
  const auto context = std::make_shared<const StageContext>(stage, num_stages(), range, std::move(settings));
  Forward known = forward_now();
  known.stage = context;
  known.placement_of = [this](const torch::Tensor& parameter) { return placement_of(parameter); };
  ForwardReport unreported;
  if (!known.report) known.report = &unreported;
  known.report->ran_layers = false;
  // Lists of layers have lengths of their own: the ranks tell each other theirs.
  if (lists_.size() > 1 && known.random) known.random->sequence_length = 0;
  const ForwardScope scope(known);
  TensorDict output = policy_->forward(*model_, *context, std::move(input));
  context->masks().clear();
  if (recomputation != Recomputation::kNone && range.size() > 0 && !known.report->ran_layers)
    throw ConfigError(
        {"schedule.recompute",
         policy_->name() + "::forward runs its layers without stage.run_layers, so they cannot be recomputed",
         "a forward that calls stage.run_layers", "call stage.run_layers in it, or remove schedule.recompute"});
  return output;
}

void refuse_split_model(const std::shared_ptr<torch::nn::Module>& model) { split_models().refuse(model); }

StageModule shard_model(const std::shared_ptr<torch::nn::Module>& model, const std::shared_ptr<const Policy>& policy,
                        const ShardConfig& config) {
  static const PipelineStageManager kOneStage(0, 1);
  const PipelineStageManager& manager = config.stages ? *config.stages : kOneStage;
  policy->validate(*model);
  policy->preprocess(*model);
  split_models().add(model);
  set_global_names(*model);

  const ModelMap map(*model);
  const int layers = layer_count(*policy, *model);
  const auto counts =
      config.layers_of_stage.empty() ? policy->distribute_layers(layers, manager.num_stages()) : config.layers_of_stage;
  const auto ranges = layer_ranges(counts, layers, manager.num_stages());
  const StageContents contents(map, *policy, *model, ranges);

  // Shapes are recorded before anything is released or sharded.
  StageModule module(model, policy, ranges, config.sequence_parallel ? config.tensor_group : nullptr,
                     config.vocabulary.has_value());
  module.tensor_group = config.tensor_group;
  const VocabularyModules* vocabulary = module.vocabulary();
  std::vector<int> every_stage(manager.num_stages());
  std::iota(every_stage.begin(), every_stage.end(), 0);
  for (const auto& parameter : map.parameters) {
    const bool is_everywhere = is_of_vocabulary(parameter.names, vocabulary);
    const auto stages = is_everywhere ? every_stage : contents.stages_of_parameter(parameter);
    module.all_placements.push_back(full_placement(parameter, stages));
  }
  auto release = [&](const std::vector<NamedTensor>& tensors) {
    for (const auto& [tensor, names] : tensors)
      if (torch::Tensor released = tensor;
          !is_of_vocabulary(names, vocabulary) && !holds_any(manager, contents.stages_of(names)))
        release_tensor(released);
  };
  release(map.parameters);
  release(map.buffers);

  if (config.tensor_group) {
    std::optional<ExpertDispatch> dispatch;
    if (config.expert_group) dispatch = config.dispatch;
    const auto plan = resolve_plan(module.split().shards, config.sequence_parallel, config.gradient_sum, dispatch);
    if (config.expert_group) refuse_no_experts(plan, config.expert_group->size());
    PlanAxes axes{.layers = *config.tensor_group};
    if (config.expert_group) axes.experts = ShardAxes(axis::kExpert, *config.expert_group);
    if (vocabulary) {
      axes.apart = config.vocabulary;
      axes.paths = {vocabulary->embedding, vocabulary->head};
    }
    place_along_axes(module.all_placements, map, plan, axes);
  }
  if (config.rows)
    for (auto& placement : module.all_placements)
      placement.shards.push_back(row_shard(placement.local_shape(config.coordinates), config.rows->of(placement.view)));
  const auto record_bytes = record_bytes_of(map);
  for (std::size_t i = 0; i < map.parameters.size(); ++i) {
    if (!holds_any(manager, module.all_placements[i].stages)) continue;
    torch::Tensor tensor = map.parameters[i].tensor;
    if (config.rows)
      shard_tensor(tensor, module.all_placements[i].shards.back(),
                   module.all_placements[i].shards.back().rank_of(config.coordinates));
    if (const auto record = record_bytes.find(tensor.unsafeGetTensorImpl()); record != record_bytes.end())
      make_records(tensor, record->second, config.device);
    else
      materialize(tensor, map.parameters[i].names.front(), config.seed, config.device);
    module.parameters.push_back({module.all_placements[i], tensor});
  }
  for (const auto& [tensor, names] : map.buffers) {
    const auto stages = contents.stages_of(names);
    if (!holds_any(manager, stages)) continue;
    torch::Tensor buffer = tensor;
    materialize(buffer, names.front(), config.seed, config.device);
    module.buffers.push_back(
        {{.name = names.front(), .global_shape = buffer.sizes().vec(), .shards = {}, .stages = stages, .aliases = {}},
         buffer});
  }
  policy->postprocess(*model);
  return module;
}

std::vector<Placement> parallelize_module(torch::nn::Module& model, const ShardAxes& axes, const ShardPlan& plan) {
  const ModelMap map(model);
  std::vector<Placement> placements;
  for (const auto& parameter : map.parameters) placements.push_back(full_placement(parameter, {0}));
  place_along_axes(placements, map, plan, {.layers = axes});
  set_global_names(model);
  return placements;
}

}  // namespace gantry
