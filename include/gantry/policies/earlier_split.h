// The fields of a ModelSplit as virtual functions, which policies stated before there was split(). The next release
// still supports policies that override these functions and not split(). They are protected: read Policy::split().
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/core/context_method.h"
#include "gantry/policies/model_split.h"

namespace gantry {

// The use of a batch, and the token streams of parallel.context.
class EarlierBatchUse {
 public:
  virtual ~EarlierBatchUse() = default;

 protected:
  virtual std::int64_t tokens_per_sample(const TensorDict& batch) const { return BatchUse().tokens_of(batch); }
  virtual std::vector<std::string> entries_between() const { return {"*"}; }
  virtual bool has_streams(const torch::nn::Module&) const { return true; }
  virtual std::vector<TokenStream> token_streams(const torch::nn::Module&, const TensorDict&) const { return {}; }
  virtual TensorDict completed(const torch::nn::Module&, TensorDict batch) const { return batch; }
  virtual bool gathers_outputs(const torch::nn::Module&) const { return false; }

  // Adds them to a split, which then refers to this object and to the model.
  ModelSplit with_use(ModelSplit split, const torch::nn::Module& model) const {
    split.batch = {.tokens_per_sample = [this](const TensorDict& batch) { return tokens_per_sample(batch); },
                   .between = entries_between()};
    if (!split.context || !dynamic_cast<const SharesStreams*>(this) || !has_streams(model)) return split;
    split.context->gathers_outputs = gathers_outputs(model);
    split.context->streams = [this, &model](const TensorDict& batch) { return token_streams(model, batch); };
    split.context->complete = [this, &model](TensorDict batch) { return completed(model, std::move(batch)); };
    return split;
  }
};

// The other fields. PolicyFor has them for its model, and Policy for any module, which the former hide.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
template <class Model, class Base>
class EarlierSplit : public Base {
 protected:
  virtual ShardPlan shard_plan(const Model&) const { return {}; }
  virtual StageLayout stage_layout(const Model&) const { return {}; }
  virtual LayerWork layer_work(const Model& model) const { return weights_of_layers(stage_layout(model), model); }
  virtual std::vector<SplitOutput> split_outputs(const Model&) const { return {}; }
  virtual std::optional<VocabularyModules> vocabulary(const Model&) const { return std::nullopt; }
  virtual std::optional<AttentionHeads> context_heads(const Model&) const { return std::nullopt; }
  virtual Continuation continuation(const Model&) const { return {}; }
  virtual std::string joint_loss(const Model&) const { return ""; }

  // The fields that these functions return.
  ModelSplit fields(const Model& model) const {
    ModelSplit split{.shards = shard_plan(model),
                     .stages = stage_layout(model),
                     .work = layer_work(model),
                     .split_outputs = split_outputs(model),
                     .vocabulary = vocabulary(model),
                     .continuation = continuation(model),
                     .joint_loss = joint_loss(model)};
    if (const auto heads = context_heads(model)) split.context = {.heads = *heads};
    return split;
  }
};
#pragma GCC diagnostic pop

}  // namespace gantry
