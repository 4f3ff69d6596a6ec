#include <algorithm>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// True for each layer with a rotary embedding: by no_rope_layers, where 0 means none. If the list is absent or empty,
// every no_rope_layer_interval-th layer has none.
std::vector<bool> read_rotary_layers(ConfigReader& reader, std::size_t layers) {
  const auto interval = static_cast<std::size_t>(reader.size("no_rope_layer_interval", 4));
  reader.ignore("no_rope_layers");
  std::vector<bool> rotates;
  for (std::size_t layer = 0; layer < layers; ++layer) rotates.push_back((layer + 1) % interval != 0);
  const json list = reader.keys().value("no_rope_layers", json());
  if (!list.is_null() && list != json::array()) {
    const auto is_flag = [](const json& entry) { return entry == 0 || entry == 1; };
    if (!list.is_array() || list.size() < layers || !std::all_of(list.begin(), list.end(), is_flag))
      refuse_key("no_rope_layers", list, "an empty list, or a list with 0 or 1 for each layer");
    for (std::size_t layer = 0; layer < layers; ++layer) rotates[layer] = list[layer] == 1;
  }
  reader.decides("rotary_layers", rotates);
  return rotates;
}

// Gives chunks to the layers that layer_types lists or, without it, to those with a rotary embedding. If
// attention_chunk_size is null, these have none.
void read_chunks(ConfigReader& reader, DecoderSpec& spec, const std::vector<bool>& rotates) {
  const std::int64_t chunk = reader.size_or_none("attention_chunk_size", 8192);
  const auto types = reader.words("layer_types", spec.layers.size(), {"chunked_attention", "full_attention"});
  json chunks = json::array();
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const bool has_chunks = types.empty() ? rotates[index] && chunk > 0 : types[index] == "chunked_attention";
    if (has_chunks && chunk == 0)
      refuse_key("attention_chunk_size", nullptr, "a number of tokens, because some layers have chunked attention");
    spec.layers[index].attention.chunk = has_chunks ? chunk : 0;
    chunks.push_back(spec.layers[index].attention.chunk);
  }
  reader.decides("chunks", chunks);
}

// Layers with positions normalise queries and keys after the rotary embedding. Those without have a factor of queries
// that grows with the position.
void read_llama4_attention(ConfigReader& reader, DecoderSpec& spec) {
  const auto rotates = read_rotary_layers(reader, spec.layers.size());
  read_chunks(reader, spec, rotates);
  const bool normed = reader.flag("use_qk_norm", true), bias = reader.flag("attention_bias", false);
  const bool tempered = reader.flag("attn_temperature_tuning", true);
  const double temperature = reader.number("attn_scale", 0.1, -1e6, 1e6);
  const std::int64_t step = reader.size("floor_scale", 8192);
  const NormSpec norm{.kind = NormSpec::Kind::kRms, .eps = spec.norm.eps, .weight = false};
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    AttentionSpec& attention = spec.layers[index].attention;
    attention.bias = attention.output_bias = bias;
    attention.norm_after_rotary = true;
    if (rotates[index]) {
      if (normed) attention.head_norm = norm;
    } else {
      attention.rotary = -1;
      if (tempered) attention.temperature = temperature;
      if (tempered) attention.temperature_step = step;
    }
  }
}

// True for each layer with experts: by the list moe_layers or, without it, every interleave_moe_layer_step-th one.
std::vector<bool> read_routing_layers(ConfigReader& reader, std::size_t layers) {
  const auto step = static_cast<std::size_t>(reader.size("interleave_moe_layer_step", 1));
  reader.ignore("moe_layers");
  std::vector<bool> routing;
  for (std::size_t layer = 0; layer < layers; ++layer) routing.push_back((layer + 1) % step == 0);
  if (reader.has("moe_layers")) {
    const json& list = reader.keys()["moe_layers"];
    const auto is_layer = [](const json& entry) { return entry.is_number_integer() && entry >= 0; };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_layer))
      refuse_key("moe_layers", list, "a list of layers, from 0");
    routing.assign(layers, false);
    for (const json& entry : list)
      if (const auto layer = entry.get<std::size_t>(); layer < layers) routing[layer] = true;
  }
  reader.decides("layers_with_experts", routing);
  return routing;
}

void read_llama4_experts(ConfigReader& reader, DecoderSpec& spec) {
  const MlpSpec mlp = spec.layers.front().mlp;
  ExpertsSpec experts;
  experts.count = reader.size("num_local_experts", 16);
  experts.used = reader.size("num_experts_per_tok", 1);
  experts.width = experts.shared_width = mlp.width;
  experts.activation = mlp.activation;
  experts.scores = ExpertsSpec::Scores::kSigmoid;
  experts.transposed = experts.weights_input = true;
  check_experts(experts);
  const auto routing = read_routing_layers(reader, spec.layers.size());
  const std::int64_t width = reader.size("intermediate_size_mlp", 16384);
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    spec.layers[index].mlp.width = width;
    if (routing[index]) spec.layers[index].experts = experts;
  }
  reader.only("router_jitter_noise", 0.0, "Gantry adds no noise to the router in training");
}

DecoderSpec read_llama4(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 202048,
                                          .hidden = 5120,
                                          .width = 8192,
                                          .layers = 48,
                                          .heads = 40,
                                          .key_heads = 8,
                                          .head_size = 128,
                                          .positions = 131072,
                                          .eps = 1e-5,
                                          .theta = 500000,
                                          .paired = true});
  read_llama4_attention(reader, spec);
  read_llama4_experts(reader, spec);
  spec.names.gate = "feed_forward.gate_proj";
  spec.names.up = "feed_forward.up_proj";
  spec.names.down = "feed_forward.down_proj";
  spec.names.router = "feed_forward.router";
  spec.names.experts = "feed_forward.experts";
  spec.names.shared = "feed_forward.shared_expert";
  return spec;
}

json small_llama4_keys() {
  return small_keys_with({{"intermediate_size", 64},
                          {"intermediate_size_mlp", 176},
                          {"num_local_experts", 4},
                          {"interleave_moe_layer_step", 2},
                          {"attention_chunk_size", 64},
                          {"floor_scale", 64}});
}

}  // namespace

DecoderFamily llama4_text_family() {
  return {.model_type = "llama4_text",
          .architecture = "Llama4ForCausalLM",
          .read = read_llama4,
          // transformers has no balancing loss for the family; the last key is for quantisation.
          .harmless = {"output_router_logits", "router_aux_loss_coef", "for_llm_compressor"},
          .small = small_llama4_keys()};
}

DecoderFamily llama4_family() {
  FileNames files = language_model_files();
  files.other_parts = {"vision_model", "multi_modal_projector"};
  return {.model_type = "llama4",
          .architecture = "Llama4ForConditionalGeneration",
          .read = read_llama4,
          .files = files,
          .harmless = {"boi_token_index", "eoi_token_index", "for_llm_compressor", "image_token_index",
                       "output_router_logits", "router_aux_loss_coef", "vision_config"},
          .small = {{"text_config", small_llama4_keys()}},
          .tower = TowerKeys{.text_types = {"llama4_text"}, .is_causal_lm = true}};
}

}  // namespace gantry::models
