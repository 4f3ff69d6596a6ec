// A custom decoder with grouped KV heads, rotary positions, padding, sequence parallelism, tied weights and losses of
// its own. It compares a step in several layouts with the same step on one rank.
#include "gantry/booster/gantry.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/rotary.h"

namespace {

constexpr std::int64_t kWidth = 24, kHeads = 6, kKeyHeads = 2, kHeadSize = kWidth / kHeads, kVocabulary = 61;
constexpr int kLayers = 4;

gantry::nn::Linear linear(std::int64_t in, std::int64_t out) {
  return gantry::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

struct LayerImpl : torch::nn::Module {
  LayerImpl() {
    attention_norm = register_module("attention_norm", gantry::nn::RmsNorm(kWidth));
    query = register_module("query", linear(kWidth, kWidth));
    key = register_module("key", linear(kWidth, kKeyHeads * kHeadSize));
    value = register_module("value", linear(kWidth, kKeyHeads * kHeadSize));
    proj = register_module("proj", linear(kWidth, kWidth));
    dropout = register_module("dropout", gantry::nn::Dropout(0.1));
    mlp_norm = register_module("mlp_norm", gantry::nn::RmsNorm(kWidth));
    gate = register_module("gate", linear(kWidth, 2 * kWidth));
    up = register_module("up", linear(kWidth, 2 * kWidth));
    down = register_module("down", linear(2 * kWidth, kWidth));
  }
  torch::Tensor attend(const torch::Tensor& hidden, const gantry::nn::TokenContext& tokens, int index) {
    const auto heads = gantry::nn::held_heads(query, kHeadSize, kHeads);  // the heads of this rank
    const auto key_heads = gantry::nn::held_heads(key, kHeadSize, kKeyHeads);
    const auto parts = gantry::nn::together(hidden, {query, key, value});  // with one all-gather
    const torch::Tensor q = rotary(gantry::nn::split_heads(parts[0], heads.count), tokens.positions);
    const torch::Tensor k = rotary(gantry::nn::split_heads(parts[1], key_heads.count), tokens.positions);
    const torch::Tensor v = gantry::nn::split_heads(parts[2], key_heads.count);
    return proj(gantry::nn::merge_heads(gantry::nn::attention(
        q, k, v, heads, key_heads,
        {.causal = true, .keep = tokens.keep, .cache = tokens.cache(index), .documents = tokens.documents}, *dropout)));
  }
  torch::Tensor mlp(const torch::Tensor& hidden) {
    const auto parts = gantry::nn::together(hidden, {gate, up});
    const torch::Tensor gated = torch::silu(parts[0]) * parts[1];  // the features of this rank
    gantry::add_loss("gated", 1e-4 * gated.square().sum(), gantry::Partial{});
    return down(gated);
  }
  gantry::LayerParts parts(const gantry::nn::TokenContext& tokens, int index) {
    return {{"attention", [=, this](const torch::Tensor& x) { return x + attend(attention_norm(x), tokens, index); }},
            {"mlp", [this](const torch::Tensor& x) { return x + mlp(mlp_norm(x)); }}};
  }
  gantry::nn::RmsNorm attention_norm{nullptr}, mlp_norm{nullptr};
  gantry::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, proj{nullptr}, gate{nullptr}, up{nullptr},
      down{nullptr};
  gantry::nn::Dropout dropout{nullptr};
  gantry::nn::Rotary rotary{kHeadSize, {.theta = 1e6}};
};
TORCH_MODULE(Layer);

struct DecoderImpl : torch::nn::Module {
  DecoderImpl() {
    tokens = register_module("tokens", gantry::nn::Embedding(kVocabulary, kWidth));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < kLayers; ++i) layers->push_back(Layer());
    norm = register_module("norm", gantry::nn::RmsNorm(kWidth));
    head = register_module("head", linear(kWidth, kVocabulary));
    head->tie_weight(tokens->weight);
  }
  gantry::TensorDict stage_forward(const gantry::StageContext& stage, const gantry::TensorDict& in) {
    const gantry::nn::TokenContext known = stage.tokens();  // the batch's mask, documents and positions
    torch::Tensor hidden = stage.is_first() ? tokens(in.at("input_ids")) : in.at("hidden");
    hidden = stage.run_layers(hidden, [&](int index) { return layers->at<LayerImpl>(index).parts(known, index); });
    if (stage.is_first())
      stage.add_parameter_loss("table", tokens->weight,
                               [](const torch::Tensor& part) { return 1e-4 * part.square().sum(); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    stage.add_loss("hidden", 1e-4 * hidden.square().sum(), gantry::Shard{1});  // the tokens of this rank
    return {{"logits", head(norm(known.for_head(hidden)))}};
  }
  gantry::nn::Embedding tokens{nullptr};
  torch::nn::ModuleList layers;
  gantry::nn::RmsNorm norm{nullptr};
  gantry::nn::Linear head{nullptr};
};
TORCH_MODULE(Decoder);

class DecoderPolicy final : public gantry::PolicyFor<DecoderImpl> {
 public:
  std::string name() const override { return "DecoderPolicy"; }
  gantry::ModelSplit split(const DecoderImpl&) const override {
    return {.shards = {{"tokens", gantry::Vocab{}},
                       {"layers.*.query", gantry::Column{.unit = kHeadSize}},
                       {"layers.*.key", gantry::Column{.unit = kHeadSize, .users = kHeads}},
                       {"layers.*.value", gantry::Column{.unit = kHeadSize, .users = kHeads}},
                       {"layers.*.proj", gantry::Row{.unit = kHeadSize}},
                       {"layers.*.gate", gantry::Column{}},
                       {"layers.*.up", gantry::Column{}},
                       {"layers.*.down", gantry::Row{}},
                       {"head", gantry::Column{}},
                       {"layers.*", gantry::SequenceParallel{}},  // norms and dropout
                       {"norm", gantry::SequenceParallel{}}},
            .stages = {.first = {"tokens"}, .repeated = "layers", .last = {"norm", "head"}},
            .split_outputs = {{"logits", "head"}},
            .continuation = {.is_cached = true},
            .batch = {.between = {"attention_mask", "document_ids", "position_ids"}}};
  }
  gantry::SharedParameters shared_parameters(const DecoderImpl&) const override {
    return {{"tokens.weight", "head.weight"}};
  }
};

std::shared_ptr<torch::nn::Module> build_decoder() {
  const gantry::DeferredInit deferred;
  return Decoder().ptr();
}

// Four sequences of up to nine tokens. The rest of each row is padding, whose labels are ignored.
gantry::TensorDict padded_batch() {
  const torch::Tensor ids = torch::arange(4 * 9).view({4, 9}) * 7 % kVocabulary;
  const torch::Tensor mask = torch::arange(9) < torch::tensor({9, 6, 8, 3}).unsqueeze(1);
  return {{"input_ids", ids}, {"attention_mask", mask}, {"labels", ((ids + 7) % kVocabulary).masked_fill(~mask, -100)}};
}

}  // namespace

int main() {
  gantry::policies().add<DecoderPolicy>("decoder");
  const auto config = gantry::Config::parse("model: {policy: decoder}\nschedule: {microbatches: 2}\n");
  return gantry::print_comparisons(gantry::compare_layouts(
      config, build_decoder, padded_batch(),
      {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2,schedule.microbatches=1",
       "parallel.tensor=3,parallel.sequence_parallel=true",
       "parallel.tensor=2,parallel.pipeline=2,parallel.sequence_parallel=true,schedule.recompute=full"}));
}
