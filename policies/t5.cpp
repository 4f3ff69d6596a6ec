#include "gantry/policies/t5.h"

#include <set>

#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

std::string encoder_table(const models::T5Config& config) {
  return config.separate_encoder_embedding ? "encoder.embed_tokens" : "shared";
}
std::string decoder_table(const models::T5Config& config) {
  return config.separate_decoder_embedding ? "decoder.embed_tokens" : "shared";
}
std::set<std::string> tables_of(const models::T5Config& config) {
  std::set<std::string> tables = {encoder_table(config), decoder_table(config)};
  if (config.has_shared_table()) tables.insert("shared");
  return tables;
}

ShardPlan shards_of(const models::T5Impl& model) {
  const std::int64_t head = model.config.d_kv;
  ShardPlan plan = {{"lm_head", Column{}}};
  for (const auto& table : tables_of(model.config)) plan.push_back({table, Vocab{}});
  const auto add_attention = [&](const std::string& path) {
    for (const char* part : {".q", ".k", ".v"}) plan.push_back({path + part, Column{.unit = head}});
    plan.push_back({path + ".o", Row{.unit = head}});
  };
  const auto add_mlp = [&](const std::string& path) {
    if (model.config.gated) plan.push_back({path + ".wi_0", Column{}});
    plan.push_back({path + (model.config.gated ? ".wi_1" : ".wi"), Column{}});
    plan.push_back({path + ".wo", Row{}});
  };
  add_attention("encoder.block.*.layer.0.SelfAttention");
  add_mlp("encoder.block.*.layer.1.DenseReluDense");
  add_attention("decoder.block.*.layer.0.SelfAttention");
  add_attention("decoder.block.*.layer.1.EncDecAttention");
  add_mlp("decoder.block.*.layer.2.DenseReluDense");
  for (const std::string stack : {"encoder", "decoder"}) {
    plan.push_back(
        {stack + (model.config.bias_in_each_layer ? ".block.*.layer.0.SelfAttention" : "") + ".relative_attention_bias",
         OnHeads{}});
    plan.push_back({stack, SequenceParallel{}});  // norms, dropouts
  }
  return plan;
}

StageLayout stages_of(const models::T5Impl& model) {
  return {.first = {encoder_table(model.config), "encoder.dropout"},
          .repeated = {{"encoder.block", {}},
                       {"decoder.block",
                        {"encoder.final_layer_norm", "encoder.last_dropout", decoder_table(model.config),
                         "decoder.dropout"}}},
          .last = {"decoder.final_layer_norm", "decoder.last_dropout", "lm_head"}};
}

}  // namespace

ModelSplit T5Policy::split(const models::T5Impl& model) const {
  ModelSplit split = pair_split(model, model.config.num_heads);
  split.shards = shards_of(model);
  split.stages = stages_of(model);
  split.split_outputs = {{"logits", "lm_head"}};
  return split;
}

std::vector<std::string> T5Policy::held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                               LayerRange layers) const {
  std::vector<std::string> held = Policy::held_layers(model, stage, num_stages, layers);
  if (dynamic_cast<const models::T5Impl&>(model).config.bias_in_each_layer) return held;
  int first = 0;
  for (const auto& list : layer_lists(*this, model)) {
    const int behind = first + static_cast<int>(list.layers.size());
    const std::string stack = list.path.substr(0, list.path.find('.'));
    if (layers.begin < behind && layers.end > first) held.push_back(stack + ".relative_attention_bias");
    first = behind;
  }
  return held;
}

SharedParameters T5Policy::shared_parameters(const models::T5Impl& model) const {
  SharedParameters shared;
  if (!model.config.bias_in_each_layer)
    shared = {{"encoder.relative_attention_bias.weight"}, {"decoder.relative_attention_bias.weight"}};
  if (!model.config.has_shared_table()) return shared;
  shared.push_back({"shared.weight"});
  if (model.config.tie_word_embeddings) shared.back().push_back("lm_head.weight");
  return shared;
}

}  // namespace gantry
