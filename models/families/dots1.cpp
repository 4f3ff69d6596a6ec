#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Qwen 3's attention. The layers after the first ones have experts, and an MLP that all tokens use.
DecoderSpec read_dots1(ConfigReader& reader) {
  DecoderSpec spec =
      read_common(reader, {.vocabulary = 152064, .hidden = 4608, .width = 10944, .layers = 62, .key_heads = 32});
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.head_norm = spec.norm;
  }
  const std::int64_t window = reader.size_or_none("sliding_window", 4096);
  const auto first = static_cast<std::size_t>(reader.size("max_window_layers", 62, 0));
  read_windows(reader, spec, window, [&](std::size_t layer) { return window > 0 && layer >= first; });
  const ExpertsSpec experts = read_sigmoid_experts(reader, spec.layers.front().mlp.activation,
                                                   {.count = 128, .used = 6, .width = 1408, .shared_width = 2});
  give_experts_after(reader, spec, experts, 0);
  return spec;
}

}  // namespace

DecoderFamily dots1_family() {
  return {
      .model_type = "dots1",
      .architecture = "Dots1ForCausalLM",
      .read = read_dots1,
      .files = separate_expert_files(),
      .harmless = {"output_router_logits"},
      .small = small_keys_with({{"n_routed_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 64}})};
}

}  // namespace gantry::models
