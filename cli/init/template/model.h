// A causal transformer over bytes that Gantry can shard, its policy, and how it is built from model.config.
#pragma once

#include "gantry/booster/gantry.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/policies/policy.h"

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t width, std::int64_t heads) : heads(heads), head_size(width / heads), rotary(head_size, {}) {
    norm = register_module("norm", gantry::nn::RmsNorm(width));
    qkv = register_module("qkv", gantry::nn::Linear(width, 3 * width));
    proj = register_module("proj", gantry::nn::Linear(width, width));
    dropout = register_module("dropout", gantry::nn::Dropout(0.0));
    mlp_norm = register_module("mlp_norm", gantry::nn::RmsNorm(width));
    up = register_module("up", gantry::nn::Linear(width, 4 * width));
    down = register_module("down", gantry::nn::Linear(4 * width, width));
  }

  // [B, S, H] -> [B, S, H], over the heads of this rank.
  torch::Tensor attend(const torch::Tensor& x, const gantry::nn::TokenContext& known) {
    const auto here = gantry::nn::held_heads(qkv, head_size, heads);
    const auto parts = qkv(x).chunk(3, -1);
    const torch::Tensor query = rotary(gantry::nn::split_heads(parts[0], here.count), known.positions);
    const torch::Tensor key = rotary(gantry::nn::split_heads(parts[1], here.count), known.positions);
    const torch::Tensor value = gantry::nn::split_heads(parts[2], here.count);
    return proj(gantry::nn::merge_heads(gantry::nn::attention(
        query, key, value, here, here, {.causal = true, .keep = known.keep, .documents = known.documents}, *dropout)));
  }
  // The parts of the layer, in order. `known`: the documents, positions and padding of the tokens.
  gantry::LayerParts parts(const gantry::nn::TokenContext& known) {
    return {{"attention", [=, this](const torch::Tensor& x) { return x + attend(norm(x), known); }},
            {"mlp", [this](const torch::Tensor& x) { return x + down(torch::gelu(up(mlp_norm(x)))); }}};
  }

  std::int64_t heads, head_size;
  gantry::nn::Rotary rotary;
  gantry::nn::RmsNorm norm{nullptr}, mlp_norm{nullptr};
  gantry::nn::Linear qkv{nullptr}, proj{nullptr}, up{nullptr}, down{nullptr};
  gantry::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Block);

struct NextByte : torch::nn::Module {
  static constexpr std::int64_t kBytes = 256;
  NextByte(std::int64_t width, std::int64_t layers, std::int64_t heads) : width(width), heads(heads) {
    tokens = register_module("tokens", gantry::nn::Embedding(kBytes, width));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < layers; ++i) blocks->push_back(Block(width, heads));
    norm = register_module("norm", gantry::nn::RmsNorm(width));
    head = register_module("head", gantry::nn::Linear(width, kBytes));
  }
  // One pipeline stage of {input_ids [B, S]} -> {logits [B, S, 256]}. Stages exchange {hidden [B, S, H]}.
  gantry::TensorDict stage_forward(const gantry::StageContext& stage, const gantry::TensorDict& in) {
    const gantry::nn::TokenContext known = stage.tokens();
    torch::Tensor hidden = stage.is_first() ? tokens(in.at("input_ids")) : in.at("hidden");
    hidden = stage.run_layers(hidden, [&](int layer) { return blocks->at<BlockImpl>(layer).parts(known); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", head(norm(hidden))}};
  }
  std::int64_t width, heads;
  gantry::nn::Embedding tokens{nullptr};
  torch::nn::ModuleList blocks;
  gantry::nn::RmsNorm norm{nullptr};
  gantry::nn::Linear head{nullptr};
};

// How modules are sharded, and which modules each stage holds.
class NextBytePolicy final : public gantry::PolicyFor<NextByte> {
 public:
  std::string name() const override { return "NextBytePolicy"; }
  gantry::ModelSplit split(const NextByte& model) const override {
    const std::int64_t head_size = model.width / model.heads;
    return {.shards = {{"tokens", gantry::Vocab{}},
                       {"blocks.*.qkv", gantry::Column{.segments = 3, .unit = head_size}},
                       {"blocks.*.proj", gantry::Row{.unit = head_size}},
                       {"blocks.*.up", gantry::Column{}},
                       {"blocks.*.down", gantry::Row{}},
                       {"blocks.*", gantry::SequenceParallel{}},  // norms and dropout
                       {"norm", gantry::SequenceParallel{}},
                       {"head", gantry::Column{}}},
            .stages = {.first = {"tokens"}, .repeated = "blocks", .last = {"norm", "head"}},
            .split_outputs = {{"logits", "head"}},
            .batch = {.between = {"attention_mask", "document_ids", "position_ids"}}};
  }
};

// The keys of model.config, with their defaults.
inline gantry::models::ModelFamily next_byte_family() {
  using gantry::models::size_key;
  using Keys = nlohmann::json;
  gantry::models::ModelFamily family;
  family.build = [](const Keys& keys) -> std::shared_ptr<torch::nn::Module> {
    const auto width = size_key(keys, "width", 64), heads = size_key(keys, "heads", 4);
    if (width % (2 * heads) != 0)
      gantry::models::refuse_key("width", width, "a multiple of twice the " + std::to_string(heads) + " heads");
    return std::make_shared<NextByte>(width, size_key(keys, "layers", 4), heads);
  };
  family.tensor_names = [build = family.build](const Keys& keys) {
    return gantry::models::names_of_parameters(*build(keys));
  };
  family.hugging_face_config = [](Keys keys) {
    keys["model_type"] = "next_byte";
    return keys;
  };
  family.model_type = "next_byte";
  family.vocabulary_size = [](const Keys&) { return NextByte::kBytes; };
  family.context_length = [](const Keys& keys) { return size_key(keys, "context", 1024); };
  return family;
}

inline void register_next_byte() {
  gantry::policies().add<NextBytePolicy>("next_byte");
  gantry::models::families().add("next_byte", next_byte_family());
}
