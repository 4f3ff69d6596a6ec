// A policy and its model in a shared library, which `gantry train` loads because train.yaml lists it in `libraries`.
#include <nlohmann/json.hpp>

#include "gantry/booster/gantry.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/policies/policy.h"

namespace {

// Predicts the next token from the current one only: an embedding, residual blocks and a head with the weight of the
// embedding.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width) {
    up = register_module("up", gantry::nn::Linear(width, 4 * width));
    down = register_module("down", gantry::nn::Linear(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::relu(up(x))); }
  gantry::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

struct NextTokenImpl : torch::nn::Module {
  NextTokenImpl(std::int64_t vocabulary, std::int64_t width, std::int64_t depth) {
    tokens = register_module("tokens", gantry::nn::Embedding(vocabulary, width));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < depth; ++i) blocks->push_back(Block(width));
    head = register_module("head", gantry::nn::Linear(width, vocabulary));
    head->tie_weight(tokens->weight);
  }
  gantry::nn::Embedding tokens{nullptr};
  torch::nn::ModuleList blocks;
  gantry::nn::Linear head{nullptr};
};

// Overrides the functions that ModelSplit has replaced, which the next release still supports. New policies override
// split(), as in examples/custom_policy.cpp.
class NextTokenPolicy final : public gantry::PolicyFor<NextTokenImpl> {
 public:
  std::string name() const override { return "NextTokenPolicy"; }
  gantry::ShardPlan shard_plan(const NextTokenImpl&) const override {
    return {{"tokens", gantry::Vocab{}},
            {"blocks.*.up", gantry::Column{}},
            {"blocks.*.down", gantry::Row{}},
            {"head", gantry::Column{}}};
  }
  gantry::StageLayout stage_layout(const NextTokenImpl&) const override {
    return {.first = {"tokens"}, .repeated = "blocks", .last = {"head"}};
  }
  std::vector<gantry::SplitOutput> split_outputs(const NextTokenImpl&) const override { return {{"logits", "head"}}; }
  gantry::SharedParameters shared_parameters(const NextTokenImpl&) const override {
    return {{"tokens.weight", "head.weight"}};
  }
  gantry::TensorDict forward(NextTokenImpl& model, const gantry::StageContext& stage,
                             gantry::TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.tokens(in.at("input_ids")) : in.at("hidden");
    hidden = stage.run_layers(
        hidden, [&](int layer, const torch::Tensor& x) { return model.blocks->at<BlockImpl>(layer).forward(x); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", model.head(hidden)}};
  }
};

// Builds the model from the keys of `model.config`, and lists its tensors' names in files.
gantry::models::ModelFamily next_token_family() {
  using gantry::models::size_key;
  const auto vocabulary = [](const nlohmann::json& keys) { return size_key(keys, "vocab_size", 256); };
  gantry::models::ModelFamily family;
  family.build = [=](const nlohmann::json& keys) -> std::shared_ptr<torch::nn::Module> {
    return std::make_shared<NextTokenImpl>(vocabulary(keys), size_key(keys, "width", 32), size_key(keys, "layers", 4));
  };
  family.tensor_names = [build = family.build](const nlohmann::json& keys) {
    return gantry::models::names_of_parameters(*build(keys));
  };
  family.hugging_face_config = [](const nlohmann::json& keys) {
    nlohmann::json full = keys;
    full["model_type"] = "next_token";
    return full;
  };
  family.model_type = "next_token";
  family.architectures = {"NextToken"};
  family.vocabulary_size = vocabulary;
  family.context_length = [](const nlohmann::json&) { return std::int64_t{1} << 20; };
  return family;
}

void add_policies() {
  gantry::policies().add<NextTokenPolicy>("next_token");
  gantry::models::families().add("next_token", next_token_family());
}

}  // namespace

GANTRY_PLUGIN_LIBRARY(add_policies)
