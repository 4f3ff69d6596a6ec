#include "gantry/plugins/boost_model.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/checkpoint/disk_work.h"
#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/plugins/joint_samples.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/plugins/own_loop.h"
#include "gantry/plugins/prepared_batch.h"
#include "gantry/plugins/user_checks.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::shared_ptr<const Policy> policy_of(const BoostRequest& request, const std::string& name) {
  if (request.policy) return request.policy;
  return name.empty() ? policy_for(*request.model) : policies().at(name)();
}

// True if stages between the first and the last read the samples themselves.
bool reads_between(const BatchUse& use, const std::vector<SampleEntry>& entries) {
  for (const auto& read : use.between) {
    const auto is_read = [&](const SampleEntry& entry) { return read == "*" || read == entry.name; };
    if (std::any_of(entries.begin(), entries.end(), is_read)) return true;
  }
  return false;
}

// The steps of boosting one model, in the order of boost_model().
class ModelBoost {
 public:
  ModelBoost(const std::shared_ptr<PluginContext>& context, const BoostRequest& request)
      : plugin_(*context),
        request_(request),
        policy_(policy_of(request, plugin_.options.policy)),
        rows_(row_shards(plugin_.mesh.mesh(), plugin_.options.zero.stage == 3 ? plugin_.options.zero.shard : 0)),
        state_(std::make_shared<ModelState>()) {
    state_->plugin = context;
    state_->loop = request.loop;
  }

  BoostedParts run() {
    plan();
    shard();
    set_up_model();
    if (request_.optimizer) set_up_optimizer();
    if (request_.loader) distribute(*request_.loader, state_->model->stage_module_unmaterialized(), plugin_);
    const StageModule& module = state_->model->stage_module();
    state_->state = std::make_unique<OptimizerState>(*state_->model, state_->optimizer, plugin_.stages, plugin_.mesh,
                                                     has_adapters(module));
    return {state_, handles()};
  }

 private:
  // Both objects own everything that they need, including the process groups, so that they can outlive the
  // plugin.
  Boosted handles() const {
    Boosted boosted{.model = {state_, state_->model.get()},
                    .optimizer = nullptr,
                    .criterion = request_.criterion,
                    .loader = request_.loader};
    if (state_->optimizer) boosted.optimizer = {state_, state_->optimizer.get()};
    return boosted;
  }

  // Ranks that train nothing hold full parameters, and so does a single replica.
  bool shards_rows() const { return plugin_.options.zero.stage == 3 && request_.optimizer && rows_.is_over_ranks(); }

  bool is_sequence_parallel() const {
    return plugin_.options.axes.tensor.sequence_parallel && plugin_.mesh.size(axis::kTensor) > 1;
  }

  // Plans the sharding of sequences and of the vocabulary.
  void plan() {
    const torch::nn::Module& model = *request_.model;
    const ModelSplit split = policy_->split(model);
    state_->parts =
        SequenceParts::of(plugin_.options.axes.context, split, policy_->name(), plugin_.mesh, plugin_.world.device());
    if (state_->parts) state_->parts->require(request_.criterion);
    state_->compares_samples = share_samples(model, plugin_.mesh);
    state_->schedules = plugin_.schedules;
    shares_vocabulary_ = chosen_vocabulary(*state_->schedules, model, split);
  }

  // False for the cases that SharedVocabulary refuses.
  bool can_share_vocabulary(const ModelSplit& split, const torch::nn::Module& model) const {
    if (!split.vocabulary || plugin_.options.zero.stage > 1 || has_adapters(model)) return false;
    const Criterion& criterion = request_.criterion;
    return !criterion || (criterion.labelled() && criterion.labelled()->logits == split.vocabulary->output);
  }

  // Whether all ranks of a pipeline compute the embedding and the head. If so, replaces the model's
  // schedules.
  bool chosen_vocabulary(ScheduleSource& schedules, const torch::nn::Module& model, const ModelSplit& split) const {
    const VocabularyPlace place = plugin_.options.axes.vocabulary;
    if (place == VocabularyPlace::kStages || plugin_.stages.pipeline_size() == 1) return false;
    if (place == VocabularyPlace::kPipeline && !split.vocabulary) refuse_vocabulary_of_family();
    const LayerWork work = work_of(split, model);
    if (place == VocabularyPlace::kAuto &&
        !(can_share_vocabulary(split, model) &&
          schedules.gains_by_vocabulary(work,
                                        chosen_layers(plugin_.options.schedule, *policy_, model, plugin_.stages))))
      return false;
    schedules.share_vocabulary(work);
    return true;
  }

  // The policies of programs are refused by shard_model(), with the advice for their split().
  void refuse_vocabulary_of_family() const {
    const std::string& family = plugin_.options.policy;
    if (request_.policy || !models::find_family_reader(family)) return;
    throw ConfigError(
        {"parallel.vocabulary", fmt::format("the value is pipeline, which this {} model does not support", family),
         "a decoder that predicts tokens, without an image encoder and multi-token prediction", "remove the key"});
  }

  void shard() {
    torch::nn::Module& model = *request_.model;
    const ProcessGroupMesh& mesh = plugin_.mesh;
    ShardConfig shard{.stages = &plugin_.stages,
                      .tensor_group = &mesh[axis::kTensor],
                      .seed = plugin_.options.seed,
                      .device = plugin_.world.device()};
    shard.sequence_parallel = is_sequence_parallel();
    if (mesh.mesh().has_expert_view()) shard.expert_group = &mesh[axis::kExpert];
    shard.dispatch = plugin_.options.experts.dispatch;
    shard.gradient_sum = gradient_sum_of(request_.loop);
    if (shards_rows()) {
      shard.rows = &rows_;
      shard.coordinates = mesh.coordinates();
    }
    shard.layers_of_stage =
        chosen_layers(plugin_.options.schedule, *policy_, model, plugin_.stages, shares_vocabulary_);
    if (shares_vocabulary_) shard.vocabulary = SharedVocabulary::axes_of(mesh);
    state_->model = std::make_shared<BoostedModel>(shard_model(request_.model, policy_, shard));
    const auto split_outputs = shares_vocabulary_ ? std::vector<SplitOutput>()
                                                  : state_->model->stage_module_unmaterialized().split().split_outputs;
    // The module now has only this rank's parameters, which are still the objects in the optimizer.
    if (const torch::Device device = plugin_.world.device(); !device.is_cpu()) model.to(device);
    const bool keeps_split = request_.loop == Loop::kPipeline && request_.criterion.accepts_split_outputs();
    state_->split = bind_split_outputs(model, split_outputs, keeps_split, mesh[axis::kTensor]);
  }

  void set_up_model() {
    const StageModule& module = state_->model->stage_module();
    if (shares_vocabulary_) {
      state_->vocabulary = std::make_unique<SharedVocabulary>(module, plugin_.options, plugin_.mesh, plugin_.stages);
      state_->vocabulary->loss_of(request_.criterion);  // throws for a criterion that is not supported
    }
    state_->real_type = real_type_of(module);
    refuse_other_precision(plugin_.options.precision, state_->real_type);
    state_->routers.emplace(plugin_.options.experts, module, plugin_.mesh, is_sequence_parallel());
  }

  // Called when the parameters consist of their rows only.
  void shard_parameters() {
    StageModule& module = state_->model->stage_module();
    state_->shards =
        std::make_unique<ParameterShards>(module.parameters, layers_of_parameters(module), rows_, plugin_.mesh);
    state_->gathered = std::make_shared<GatheredStages>(*state_->shards, module);
    module.materialize_shard = [shards = state_->shards.get()] { shards->keep_rows(); };
    module.gather = [gathered = state_->gathered, stages = plugin_.stages.stages()] {
      return gathered->gather_all(stages);
    };
  }

  void set_up_optimizer() {
    const StageModule& module = state_->model->stage_module();
    auto shared = make_shared_groups(module, plugin_.stages, plugin_.mesh, state_->shared_groups);
    keep_held_parameters(*request_.optimizer, module);
    if (shards_rows()) shard_parameters();
    state_->optimizer =
        boost_optimizer(request_, state_->shards ? state_->shards->unsharded() : module.parameters, std::move(shared),
                        plugin_.options, plugin_.mesh, plugin_.stages, state_->shards.get());
    state_->accumulation = std::make_unique<Accumulation>(state_->optimizer, module, plugin_.mesh);
    if (const auto& offload = plugin_.options.devices.offload; offload.any())
      state_->offload =
          std::make_unique<StepOffload>(offload, *state_->optimizer, plugin_.stages.stages(), plugin_.world.device());
    if (plugin_.options.devices.graphs) record_graphs(module);
    state_->optimizer->set_after_step([routers = &*state_->routers] { routers->stepped(); });
  }

  void record_graphs(const StageModule& module) {
    if (state_->compares_samples)
      throw ConfigError({"train.device_graphs",
                         "CUDA graphs do not support a loss that compares all samples, because the host reads the "
                         "number of samples of each replica in every step",
                         "", "remove train.device_graphs"});
    const auto* decoder = dynamic_cast<const models::DecoderImpl*>(request_.model.get());
    if (decoder && decoder->spec.vision)
      throw ConfigError({"train.device_graphs",
                         "CUDA graphs do not support image encoders, because the host reads the sizes of the images in "
                         "every step",
                         "", "remove train.device_graphs, or set model.config.image_encoder to false"});
    if (state_->routers->choices())
      throw ConfigError({"train.device_graphs",
                         "CUDA graphs do not support models with experts, because the host reads the number of "
                         "tokens per expert in every step",
                         "", "remove train.device_graphs"});
    state_->graphs = std::make_unique<StageGraphs>(module, plugin_.world.device());
  }

  PluginContext& plugin_;
  const BoostRequest& request_;
  std::shared_ptr<const Policy> policy_;
  RowShards rows_;
  std::shared_ptr<ModelState> state_;
  bool shares_vocabulary_ = false;  // over the ranks of a pipeline
};

}  // namespace

BoostedParts boost_model(const std::shared_ptr<PluginContext>& context, const BoostRequest& request) {
  if (request.loop == Loop::kOwn) refuse_what_needs_the_pipeline(context->options, context->mesh);
  refuse_used_optimizer(request.optimizer.get());
  refuse_split_model(request.model);  // before its sharded shapes are compared with full ones
  synchronise_initial_weights(*request.model, context->mesh);
  return ModelBoost(context, request).run();
}

void distribute(DataLoader& loader, const StageModule& module, const PluginContext& plugin) {
  const ProcessGroupMesh& mesh = plugin.mesh;
  const bool at_an_end = plugin.stages.holds_first() || plugin.stages.holds_last();
  const bool reads = at_an_end || loader.all_ranks_read() || module.vocabulary() ||
                     reads_between(module.split().batch, loader.entries());
  DiskProgress progress;
  const auto limits = disk_limits(plugin.world.config().comm.timeout_seconds, "opening the data");
  work_on_disk(mesh.world_group(), limits, progress, [&] {
    loader.distribute(mesh.size(axis::kData), mesh.coordinate(axis::kData), reads,
                      [&](std::uint64_t bytes) { progress.add(bytes); });
  });
  loader.send_ahead_to(plugin.world.device());
  const double samples = reads ? static_cast<double>(loader.samples()) : 0;
  loader.set_samples(static_cast<std::int64_t>(all_reduce_number(mesh[axis::kPipeline], samples, ReduceOp::kMax)));
}

}  // namespace gantry
