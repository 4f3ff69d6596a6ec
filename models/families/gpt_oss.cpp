#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// The default if config.json has no keys of the rotary embedding, or only its base.
nn::RotaryOptions published_rotary(nn::RotaryOptions rotary) {
  rotary.type = "yarn";
  rotary.factor = 32;
  rotary.original_positions = 4096;
  rotary.truncate = false;
  return rotary;
}

ExpertsSpec read_experts(ConfigReader& reader, std::int64_t width) {
  ExpertsSpec experts;
  experts.count = reader.size("num_local_experts", 128);
  experts.used = reader.size("num_experts_per_tok", 4);
  reader.only("experts_per_token", experts.used);  // its name in the files that are published
  experts.width = width;
  experts.scores = ExpertsSpec::Scores::kSoftmaxOfUsed;
  experts.router_bias = experts.bias = experts.interleaved = true;
  experts.limit = reader.number("swiglu_limit", 7, 1e-6, 1e6);
  reader.only("swiglu_alpha", 1.702, "Gantry has this constant only");
  check_experts(experts);
  return experts;
}

// Sinks in attention, windows in every other layer, biases everywhere, experts with a clamped gate.
DecoderSpec read_gpt_oss(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 201088,
                                          .hidden = 2880,
                                          .width = 2880,
                                          .layers = 36,
                                          .heads = 64,
                                          .key_heads = 8,
                                          .head_size = 64,
                                          .positions = 131072,
                                          .eps = 1e-5,
                                          .theta = 150000});
  if (!reader.has("rope_parameters") && !reader.has("rope_scaling"))
    spec.rotaries = {published_rotary(spec.rotaries.front())};
  const bool bias = reader.flag("attention_bias", true);
  const ExpertsSpec experts = read_experts(reader, spec.layers.front().mlp.width);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.sinks = true;
    layer.experts = experts;
  }
  spec.names.router = "mlp.router";
  spec.router_loss = read_router_loss(reader);
  read_windows(reader, spec, reader.size_or_none("sliding_window", 128),
               [](std::size_t layer) { return layer % 2 == 0; });
  return spec;
}

}  // namespace

DecoderFamily gpt_oss_family() {
  return {
      .model_type = "gpt_oss",
      .architecture = "GptOssForCausalLM",
      .read = read_gpt_oss,
      .files = {.renamed = {{"self_attn.sinks.weight", "self_attn.sinks"}},
                .transposed = {},
                .expert_gate = "",
                .expert_up = "",
                .expert_down = ""},
      .harmless = {"initial_context_length"},
      .small = small_keys_with(
          {{"intermediate_size", 64}, {"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"sliding_window", 64}})};
}

}  // namespace gantry::models
