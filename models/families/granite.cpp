#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {

void read_granite_multipliers(ConfigReader& reader, DecoderSpec& spec) {
  const bool attention_bias = reader.flag("attention_bias", false);
  const double scale = reader.number("attention_multiplier", 1, 1e-9, 1e6);
  const double residual = reader.number("residual_multiplier", 1, 1e-9, 1e6);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = attention_bias;
    layer.attention.scale = scale;
    layer.residual_scale = residual;
  }
  spec.embedding_scale = reader.number("embedding_multiplier", 1, 1e-9, 1e6);
  spec.logit_scale = 1 / reader.number("logits_scaling", 1, 1e-9, 1e6);
}

namespace {

// Llama with multipliers of embedding, residual branches, scores and logits.
DecoderSpec read_granite(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {});
  read_granite_multipliers(reader, spec);
  const bool bias = reader.flag("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) layer.mlp.bias = bias;
  return spec;
}

// Granite with experts in every layer. The softmax is over the chosen experts.
DecoderSpec read_granitemoe(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {});
  read_granite_multipliers(reader, spec);
  ExpertsSpec experts;
  experts.count = reader.size("num_local_experts", 8);
  experts.used = reader.size("num_experts_per_tok", 2);
  experts.scores = ExpertsSpec::Scores::kSoftmaxOfUsed;
  experts.width = spec.layers.front().mlp.width;
  experts.activation = spec.layers.front().mlp.activation;
  check_experts(experts);
  for (LayerSpec& layer : spec.layers) layer.experts = experts;
  spec.router_loss = read_router_loss(reader);
  return spec;
}

}  // namespace

DecoderFamily granite_family() {
  return {.model_type = "granite", .architecture = "GraniteForCausalLM", .read = read_granite};
}

DecoderFamily granitemoe_family() {
  return {.model_type = "granitemoe",
          .architecture = "GraniteMoeForCausalLM",
          .read = read_granitemoe,
          .files = {.renamed = {{"mlp.gate", "block_sparse_moe.router.layer"},
                                {"mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"},
                                {"mlp.experts.down_proj", "block_sparse_moe.output_linear.weight"}}},
          .harmless = {},
          .small = small_keys_with({{"intermediate_size", 64}, {"num_local_experts", 4}})};
}

}  // namespace gantry::models
