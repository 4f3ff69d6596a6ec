#include <fmt/format.h>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostTimes = 4096;

DecoderNames gpt_neo_names() {
  return {.tokens = "wte",
          .positions = "wpe",
          .dropout = "drop",
          .layers = "h",
          .norm = "ln_f",
          .input = "ln_1",
          .query = "attn.attention.q_proj",
          .key = "attn.attention.k_proj",
          .value = "attn.attention.v_proj",
          .fused = "",
          .output = "attn.attention.out_proj",
          .attention_dropout = "attn.attention.attn_dropout",
          .output_dropout = "attn.attention.resid_dropout",
          .after_attention = "",
          .before_mlp = "ln_2",
          .up = "mlp.c_fc",
          .down = "mlp.c_proj",
          .fused_gate = "",
          .mlp_dropout = "mlp.dropout",
          .after_mlp = ""};
}

// attention_types is a list of pairs: kinds of layers, and how often they follow each other.
json kinds_of_layers(ConfigReader& reader) {
  const json pairs = reader.has("attention_types") ? reader.keys()["attention_types"]
                                                   : json::array({json::array({json::array({"global", "local"}), 12})});
  const auto refuse = [&] { refuse_key("attention_types", pairs, "pairs such as [[\"global\", \"local\"], 12]"); };
  json kinds = json::array();
  if (!pairs.is_array()) refuse();
  for (const json& pair : pairs) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_array() || !pair[1].is_number_integer()) refuse();
    const auto times = pair[1].get<std::int64_t>();
    if (times < 1 || times > kMostTimes) refuse();
    for (std::int64_t time = 0; time < times; ++time) kinds.insert(kinds.end(), pair[0].begin(), pair[0].end());
  }
  for (const json& kind : kinds)
    if (kind != "global" && kind != "local") refuse();
  return kinds;
}

void read_local_layers(ConfigReader& reader, DecoderSpec& spec) {
  reader.ignore("attention_types");
  const json kinds = kinds_of_layers(reader);
  if (kinds.size() != spec.layers.size())
    refuse_key("num_layers", spec.layers.size(), fmt::format("the {} layers of attention_types", kinds.size()));
  reader.only("attention_layers", kinds, "attention_types has other layers");
  const std::int64_t window = reader.size("window_size", 256);
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer)
    if (kinds[layer] == "local") spec.layers[layer].attention.window = window;
  reader.decides("layers_with_windows", kinds);
}

// Learned positions, scores without a scale, windows in every other layer.
DecoderSpec read_gpt_neo(ConfigReader& reader) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", 50257);
  spec.positions = reader.size("max_position_embeddings", 2048);
  spec.learned_positions = true;
  spec.hidden = reader.size("hidden_size", 2048);
  const NormSpec norm{NormSpec::Kind::kLayer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  LayerSpec layer{
      .input = norm, .after_attention = {}, .before_mlp = norm, .after_mlp = {}, .attention = {}, .mlp = {}};
  AttentionSpec& attention = layer.attention;
  attention.heads = attention.key_heads = reader.size("num_heads", 16);
  require_multiple_of_heads("hidden_size", spec.hidden, "num_heads", attention.heads);
  attention.head_size = spec.hidden / attention.heads;
  attention.output_bias = true;
  attention.scale = 1;
  attention.dropout = reader.number("attention_dropout", 0, 0, 1);
  layer.mlp.width = reader.size("intermediate_size", 4 * spec.hidden);
  layer.mlp.bias = true;
  layer.mlp.activation = reader.activation("activation_function", "gelu_new");
  spec.layers.assign(static_cast<std::size_t>(reader.size("num_layers", 24)), layer);
  read_local_layers(reader, spec);
  spec.norm = norm;
  spec.embedding_dropout = reader.number("embed_dropout", 0, 0, 1);
  spec.output_dropout = reader.number("resid_dropout", 0, 0, 1);
  spec.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", true);
  spec.names = gpt_neo_names();
  return spec;
}

}  // namespace

DecoderFamily gpt_neo_family() {
  return {.model_type = "gpt_neo",
          .architecture = "GPTNeoForCausalLM",
          .read = read_gpt_neo,
          .files = {.prefix = "transformer.",
                    .head = "lm_head",
                    .renamed = {},
                    .transposed = {},
                    .ignored = {".attn.attention.bias", ".attn.attention.masked_bias"}},
          .harmless = {"classifier_dropout", "gradient_checkpointing", "summary_activation", "summary_first_dropout",
                       "summary_proj_to_labels", "summary_type", "summary_use_proj"},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"num_layers", 4},
                    {"num_heads", 4},
                    {"max_position_embeddings", 256},
                    {"attention_types", json::array({json::array({json::array({"global", "local"}), 2})})}}};
}

}  // namespace gantry::models
