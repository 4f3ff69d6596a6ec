// The fields of a ModelSplit as virtual functions, which policies stated before there was split(). The next release
// still supports policies that override these functions and not split().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/policies/model_split.h"

namespace gantry {

template <class Model>
class EarlierSplit {
 public:
  virtual ~EarlierSplit() = default;
  virtual ShardPlan shard_plan(const Model&) const { return {}; }
  virtual StageLayout stage_layout(const Model&) const { return {}; }
  virtual LayerWork layer_work(const Model& model) const { return weights_of_layers(stage_layout(model), model); }
  virtual std::vector<SplitOutput> split_outputs(const Model&) const { return {}; }
  virtual std::optional<VocabularyModules> vocabulary(const Model&) const { return std::nullopt; }
  virtual std::optional<AttentionHeads> context_heads(const Model&) const { return std::nullopt; }
  virtual Continuation continuation(const Model&) const { return {}; }
  virtual std::string joint_loss(const Model&) const { return ""; }
};

// The same for the use of a batch, and for the token streams of parallel.context.
class EarlierBatchUse {
 public:
  virtual ~EarlierBatchUse() = default;
  virtual std::int64_t tokens_per_sample(const TensorDict& batch) const { return BatchUse().tokens_of(batch); }
  virtual std::vector<std::string> entries_between() const { return {"*"}; }
  virtual bool has_streams(const torch::nn::Module&) const { return true; }
  virtual std::vector<TokenStream> token_streams(const torch::nn::Module&, const TensorDict&) const { return {}; }
  virtual TensorDict completed(const torch::nn::Module&, TensorDict batch) const { return batch; }
  virtual bool gathers_outputs(const torch::nn::Module&) const { return false; }
};

// The value of these functions. It refers to all three arguments.
template <class Model>
ModelSplit collect(const EarlierSplit<Model>& parts, const EarlierBatchUse& use, const Model& model) {
  ModelSplit split{.shards = parts.shard_plan(model),
                   .stages = parts.stage_layout(model),
                   .work = parts.layer_work(model),
                   .split_outputs = parts.split_outputs(model),
                   .vocabulary = parts.vocabulary(model),
                   .continuation = parts.continuation(model),
                   .joint_loss = parts.joint_loss(model)};
  split.batch = {.tokens_per_sample = [&use](const TensorDict& batch) { return use.tokens_per_sample(batch); },
                 .between = use.entries_between()};
  const auto heads = parts.context_heads(model);
  if (!heads) return split;
  split.context = {.heads = *heads, .gathers_outputs = use.gathers_outputs(model)};
  if (!use.has_streams(model) || use.token_streams(model, {}).empty()) return split;
  split.context->streams = [&](const TensorDict& batch) { return use.token_streams(model, batch); };
  split.context->complete = [&](TensorDict batch) { return use.completed(model, std::move(batch)); };
  return split;
}

}  // namespace gantry
