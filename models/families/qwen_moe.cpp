#include <algorithm>
#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// Layers that have an MLP although decoder_sparse_step gives them experts.
std::vector<std::size_t> read_dense_layers(ConfigReader& reader, std::size_t layers) {
  reader.ignore("mlp_only_layers");
  if (!reader.has("mlp_only_layers")) return {};
  const json& list = reader.keys()["mlp_only_layers"];
  const auto is_layer = [&](const json& layer) {
    return layer.is_number_unsigned() && layer.get<std::uint64_t>() < layers;
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_layer))
    refuse_key("mlp_only_layers", list, fmt::format("a list of layers, counted from 0 to {}", layers - 1));
  return list.get<std::vector<std::size_t>>();
}

}  // namespace

void give_every_experts(ConfigReader& reader, DecoderSpec& spec, const ExpertsSpec& experts) {
  const auto step = static_cast<std::size_t>(reader.size("decoder_sparse_step", 1));
  const auto dense = read_dense_layers(reader, spec.layers.size());
  json layers = json::array();
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    if ((index + 1) % step != 0 || std::count(dense.begin(), dense.end(), index) > 0) continue;
    spec.layers[index].experts = experts;
    layers.push_back(index);
  }
  reader.decides("layers_with_experts", layers);
}

namespace {

ExpertsSpec read_experts(ConfigReader& reader, const DecoderSpec& spec, std::int64_t count, std::int64_t used,
                         std::int64_t width) {
  ExpertsSpec experts;
  experts.count = count;
  experts.used = reader.size("num_experts_per_tok", used);
  experts.width = reader.size("moe_intermediate_size", width);
  experts.normalised = reader.flag("norm_topk_prob", false);
  experts.activation = spec.layers.front().mlp.activation;
  check_experts(experts);
  return experts;
}

// Qwen 2 with experts, and an MLP with a gate of its own that all tokens use.
DecoderSpec read_qwen2_moe(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 151936,
                                          .hidden = 2048,
                                          .width = 5632,
                                          .layers = 24,
                                          .heads = 16,
                                          .key_heads = 16,
                                          .positions = 32768});
  const bool bias = reader.flag("qkv_bias", true);
  for (LayerSpec& layer : spec.layers) layer.attention.bias = bias;
  ExpertsSpec experts = read_experts(reader, spec, reader.size("num_experts", 60), 4, 1408);
  experts.shared_width = reader.size("shared_expert_intermediate_size", 5632);
  experts.shared_gate = true;
  give_every_experts(reader, spec, experts);
  const bool uses = reader.flag("use_sliding_window", false);
  const std::int64_t window = reader.size_or_none("sliding_window", 4096);
  const auto first = static_cast<std::size_t>(reader.size("max_window_layers", 28, 0));
  read_windows(reader, spec, uses ? window : 0,
               [&](std::size_t layer) { return uses && layer % 2 == 0 && layer < first; });
  spec.router_loss = read_router_loss(reader);
  return spec;
}

// Qwen 3 with experts. num_local_experts is transformers' name for num_experts.
DecoderSpec read_qwen3_moe(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 151936,
                                          .hidden = 2048,
                                          .width = 6144,
                                          .layers = 24,
                                          .heads = 32,
                                          .key_heads = 4,
                                          .positions = 32768});
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.head_norm = layer.input;
  }
  const std::int64_t count = reader.size("num_experts", size_key(reader.keys(), "num_local_experts", 128));
  reader.only("num_local_experts", count);
  give_every_experts(reader, spec, read_experts(reader, spec, count, 8, 768));
  const bool uses = reader.flag("use_sliding_window", false);
  const std::int64_t window = reader.size_or_none("sliding_window", 4096);
  set_window_of_all(spec, uses ? window : 0);
  spec.router_loss = read_router_loss(reader);
  return spec;
}

}  // namespace

FileNames separate_expert_files() {
  return {.renamed = {},
          .transposed = {},
          .expert_gate = "mlp.experts.{}.gate_proj",
          .expert_up = "mlp.experts.{}.up_proj",
          .expert_down = "mlp.experts.{}.down_proj"};
}

DecoderFamily qwen2_moe_family() {
  return {.model_type = "qwen2_moe",
          .architecture = "Qwen2MoeForCausalLM",
          .read = read_qwen2_moe,
          .files = separate_expert_files(),
          .harmless = {},
          .small = small_keys_with({{"num_experts", 4},
                                    {"num_experts_per_tok", 2},
                                    {"moe_intermediate_size", 64},
                                    {"shared_expert_intermediate_size", 64}})};
}

DecoderFamily qwen3_moe_family() {
  return {.model_type = "qwen3_moe",
          .architecture = "Qwen3MoeForCausalLM",
          .read = read_qwen3_moe,
          .files = separate_expert_files(),
          .harmless = {"max_window_layers"},
          .small = small_keys_with({{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 64}})};
}

}  // namespace gantry::models
