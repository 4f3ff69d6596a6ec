#include "gantry/models/described/model_sizes.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gantry/models/described/contrastive_spec.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/model_flops.h"

namespace gantry::models {
namespace {

using nlohmann::json;

double linear_size(double in, double out, bool bias = true) { return in * out + (bias ? out : 0); }

// The first layer with attention; null: there is none.
const LayerSpec* first_attending(const DecoderSpec& spec) {
  const auto layer = std::ranges::find_if(spec.layers, [](const LayerSpec& one) { return one.has_attention(); });
  return layer == spec.layers.end() ? nullptr : &*layer;
}

ModelSizes sizes_of(const DecoderSpec& spec) {
  const auto attending = first_attending(spec);
  ModelSizes sizes{.layers = static_cast<std::int64_t>(spec.layers.size()),
                   .hidden = spec.hidden,
                   .heads = attending ? attending->attention.heads : 0,
                   .key_heads = attending ? attending->attention.key_heads : 0,
                   .vocabulary = spec.vocabulary,
                   .positions = spec.unlimited_positions ? 0 : spec.positions,
                   .parameters = parameter_count(spec)};
  for (const LayerSpec& layer : spec.layers)
    if (layer.experts)
      std::tie(sizes.experts, sizes.used_experts) = std::pair(layer.experts->count, layer.experts->used);
  return sizes;
}

double bert_head_size(const BertConfig& config, double hidden) {
  const double labels = static_cast<double>(config.num_labels), words = static_cast<double>(config.vocab_size);
  const auto width = static_cast<double>(config.embedding_width());
  switch (config.head) {
    case BertHead::kNone:
      return config.is_pooled_without_head ? linear_size(hidden, hidden) : 0;
    case BertHead::kMaskedLm:
      return linear_size(hidden, width) + 2 * width + words + (config.tie_word_embeddings ? 0 : words * width);
    case BertHead::kSequenceClassification:
      return linear_size(hidden, hidden) + linear_size(hidden, labels);
    case BertHead::kTokenClassification:
      return linear_size(hidden, labels);
    case BertHead::kQuestionAnswering:
      return linear_size(hidden, 2);
    case BertHead::kMultipleChoice:
      return linear_size(hidden, hidden) + linear_size(hidden, 1);
  }
  return 0;
}

// NomicBERT's layers have three matrices in the MLP, and biases only in their norms.
double bert_layer_size(const BertConfig& config) {
  const double hidden = static_cast<double>(config.hidden_size), inner = static_cast<double>(config.intermediate_size);
  const double heads = static_cast<double>(config.num_attention_heads * config.head_size());
  if (config.fused) return 4 * hidden * heads + 3 * hidden * inner + 4 * hidden;
  return 4 * linear_size(hidden, hidden) + linear_size(hidden, inner) + linear_size(inner, hidden) + 4 * hidden;
}

ModelSizes sizes_of(const BertConfig& config) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const std::int64_t positions = config.rotary ? 0 : config.max_position_embeddings;
  const auto rows = static_cast<double>(config.vocab_size + positions + config.type_vocab_size);
  const auto width = static_cast<double>(config.embedding_width());
  return {.layers = config.num_hidden_layers,
          .hidden = config.hidden_size,
          .heads = config.num_attention_heads,
          .key_heads = config.num_attention_heads,
          .fewest_heads = config.num_attention_heads,
          .vocabulary = config.vocab_size,
          .positions = config.longest(),
          .parameters = rows * width + 2 * width + (width == hidden ? 0 : linear_size(width, hidden)) +
                        static_cast<double>(config.num_hidden_layers) * bert_layer_size(config) +
                        bert_head_size(config, hidden)};
}

double modern_head_size(const ModernBertConfig& config, double hidden, double norm) {
  const BertConfig& bert = config.bert;
  if (bert.head == BertHead::kNone) return 0;
  const double dense = linear_size(hidden, hidden, config.classifier_bias) + norm;
  if (bert.head != BertHead::kMaskedLm) return dense + linear_size(hidden, static_cast<double>(bert.outputs()));
  const auto words = static_cast<double>(bert.vocab_size);
  return dense + (bert.tie_word_embeddings ? 0 : words * hidden) + (config.decoder_bias ? words : 0);
}

ModelSizes sizes_of(const ModernBertConfig& config) {
  const BertConfig& bert = config.bert;
  const double hidden = static_cast<double>(bert.hidden_size), inner = static_cast<double>(bert.intermediate_size);
  const double norm = config.norm_bias ? 2 * hidden : hidden;
  const double layer =
      linear_size(hidden, 3 * hidden, config.attention_bias) + linear_size(hidden, hidden, config.attention_bias) +
      linear_size(hidden, 2 * inner, config.mlp_bias) + linear_size(inner, hidden, config.mlp_bias) + 2 * norm;
  // The first layer has no norm before its attention.
  return {.layers = bert.num_hidden_layers,
          .hidden = bert.hidden_size,
          .heads = bert.num_attention_heads,
          .key_heads = bert.num_attention_heads,
          .fewest_heads = bert.num_attention_heads,
          .vocabulary = bert.vocab_size,
          .positions = bert.longest(),
          .parameters = static_cast<double>(bert.vocab_size) * hidden + 2 * norm +
                        static_cast<double>(bert.num_hidden_layers) * layer - norm +
                        modern_head_size(config, hidden, norm)};
}

ModelSizes sizes_of(const BartConfig& config) {
  const auto hidden = static_cast<double>(config.d_model), words = static_cast<double>(config.vocab_size);
  const double attention = 4 * linear_size(hidden, hidden) + 2 * hidden;
  const auto mlp = [&](std::int64_t width) {
    return linear_size(hidden, static_cast<double>(width)) + linear_size(static_cast<double>(width), hidden) +
           2 * hidden;
  };
  const double tables = 2 * static_cast<double>(config.max_position_embeddings + config.first_position()) * hidden +
                        words * hidden * (config.tie_word_embeddings ? 1 : 2);
  return {.layers = config.encoder_layers + config.decoder_layers,
          .hidden = config.d_model,
          .heads = config.decoder_attention_heads,
          .key_heads = config.decoder_attention_heads,
          .fewest_heads = std::min(config.encoder_attention_heads, config.decoder_attention_heads),
          .vocabulary = config.vocab_size,
          .positions = config.max_position_embeddings,
          .parameters = tables + words + 4 * hidden +
                        static_cast<double>(config.encoder_layers) * (attention + mlp(config.encoder_ffn_dim)) +
                        static_cast<double>(config.decoder_layers) * (2 * attention + mlp(config.decoder_ffn_dim))};
}

ModelSizes sizes_of(const VitConfig& config) {
  const double hidden = static_cast<double>(config.hidden_size), inner = static_cast<double>(config.intermediate_size);
  const double pixels = static_cast<double>(config.num_channels * config.patch_size * config.patch_size);
  const double layer = 3 * linear_size(hidden, hidden, config.qkv_bias) + linear_size(hidden, hidden) +
                       linear_size(hidden, inner) + linear_size(inner, hidden) + 4 * hidden;
  return {.layers = config.num_hidden_layers,
          .hidden = config.hidden_size,
          .heads = config.num_attention_heads,
          .key_heads = config.num_attention_heads,
          .fewest_heads = config.num_attention_heads,
          .positions = config.tokens(),
          .parameters = hidden + static_cast<double>(config.tokens()) * hidden + linear_size(pixels, hidden) +
                        static_cast<double>(config.num_hidden_layers) * layer + 2 * hidden +
                        linear_size(hidden, static_cast<double>(config.num_labels))};
}

ModelSizes sizes_of(const T5Config& config) {
  const double hidden = static_cast<double>(config.d_model);
  const double inner = static_cast<double>(config.num_heads * config.d_kv);
  const double words = static_cast<double>(config.vocab_size) * hidden;
  const double mlp = (config.gated ? 3 : 2) * hidden * static_cast<double>(config.d_ff);
  const double encoder_layer = 4 * hidden * inner + mlp + 2 * hidden;
  const double decoder_layer = 8 * hidden * inner + mlp + 3 * hidden;
  const double bias = static_cast<double>(config.relative_attention_num_buckets * config.num_heads);
  const auto biases =
      static_cast<double>(config.bias_in_each_layer ? config.num_layers + config.num_decoder_layers : 2);
  return {.layers = config.num_layers + config.num_decoder_layers,
          .hidden = config.d_model,
          .heads = config.num_heads,
          .key_heads = config.num_heads,
          .fewest_heads = config.num_heads,
          .vocabulary = config.vocab_size,
          .parameters = words * (config.tie_word_embeddings ? 1 : 2) + biases * bias + 2 * hidden +
                        static_cast<double>(config.num_layers) * encoder_layer +
                        static_cast<double>(config.num_decoder_layers) * decoder_layer};
}

ModelSizes sizes_of(const WhisperConfig& config) {
  const double hidden = static_cast<double>(config.d_model), mels = static_cast<double>(config.num_mel_bins);
  const double words = static_cast<double>(config.vocab_size) * hidden;
  const double attention = 4 * hidden * hidden + 3 * hidden + 2 * hidden;  // keys have no bias; with its norm
  const auto mlp = [&](std::int64_t width) {
    return linear_size(hidden, static_cast<double>(width)) + linear_size(static_cast<double>(width), hidden) +
           2 * hidden;
  };
  const double sound = 3 * mels * hidden + hidden + 3 * hidden * hidden + hidden;
  const double rows = static_cast<double>(config.max_source_positions + config.max_target_positions);
  return {.layers = config.encoder_layers + config.decoder_layers,
          .hidden = config.d_model,
          .heads = config.decoder_attention_heads,
          .key_heads = config.decoder_attention_heads,
          .fewest_heads = std::min(config.encoder_attention_heads, config.decoder_attention_heads),
          .vocabulary = config.vocab_size,
          .positions = config.max_target_positions,
          .parameters = sound + rows * hidden + words * (config.tie_word_embeddings ? 1 : 2) + 4 * hidden +
                        static_cast<double>(config.encoder_layers) * (attention + mlp(config.encoder_ffn_dim)) +
                        static_cast<double>(config.decoder_layers) * (2 * attention + mlp(config.decoder_ffn_dim))};
}

// The sizes of the text tower, with the layers and parameters of both towers.
ModelSizes sizes_of(const ContrastiveSpec& spec) {
  double parameters = 0;
  for (const ParameterShape& parameter : parameter_shapes(spec)) {
    double size = 1;
    for (const std::int64_t extent : parameter.shape) size *= static_cast<double>(extent);
    parameters += size;
  }
  return {.layers = spec.text.layers + spec.vision.tower.layers,
          .hidden = spec.text.hidden,
          .heads = spec.text.heads,
          .key_heads = spec.text.heads,
          .fewest_heads = std::min(spec.text.heads, spec.vision.tower.heads),
          .vocabulary = spec.vocabulary,
          .positions = spec.positions,
          .parameters = parameters};
}

template <class Read>
ModelSizes sizes_by(const json& keys, const std::string& model_type, const Read& read,
                    bool has_cross_attention = false) {
  return sizes_of(read_keys(keys, model_type, with_shared_keys(read, has_cross_attention)));
}

// The names of the kinds of mixers, each once.
std::vector<std::string> mixer_names(const DecoderSpec& spec) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : spec.layers)
    if (layer.mixer && std::ranges::find(names, layer.mixer->name()) == names.end())
      names.push_back(layer.mixer->name());
  return names;
}

std::string decoder_features(const DecoderSpec& spec) {
  std::vector<std::string> features;
  const auto has = [&](const auto& property) { return std::any_of(spec.layers.begin(), spec.layers.end(), property); };
  const LayerSpec* attending = first_attending(spec);
  const LayerSpec& layer = attending ? *attending : spec.layers.front();
  const AttentionSpec attention = attending ? layer.attention : AttentionSpec();
  for (const std::string& kind : mixer_names(spec)) features.push_back(kind);
  if (attending && !mixer_names(spec).empty()) features.emplace_back("attention");
  const bool rotates = has([](const LayerSpec& one) { return one.has_attention() && one.attention.rotary >= 0; });
  if (attending)
    features.emplace_back(!attention.slopes.empty() ? "ALiBi"
                          : spec.learned_positions  ? "learned positions"
                          : rotates                 ? "rotary positions"
                                                    : "no positions");
  if (attention.latent) features.emplace_back("latent attention");
  if (!attention.latent && attention.key_heads < attention.heads) features.emplace_back("grouped KV heads");
  if (has([](const LayerSpec& one) { return one.has_attention() && one.attention.window > 0; }))
    features.emplace_back("windows");
  if (has([](const LayerSpec& one) { return one.has_attention() && one.attention.chunk > 0; }))
    features.emplace_back("chunked attention");
  if (attention.sinks) features.emplace_back("attention sinks");
  if (has([](const LayerSpec& one) { return one.attention.keys_of >= 0; })) features.emplace_back("shared keys");
  if (spec.streams > 1) features.emplace_back("several streams");
  if (spec.layer_inputs) features.emplace_back("embeddings of each layer");
  if (layer.parallel) features.emplace_back("parallel attention and MLP");
  if (has([](const LayerSpec& one) { return one.experts.has_value(); })) features.emplace_back("experts");
  features.emplace_back(spec.tied ? "tied output layer" : "own output layer");
  return fmt::format("decoder: {}", fmt::join(features, ", "));
}

}  // namespace

ModelSizes model_sizes(const std::string& model_type, const json& keys) {
  if (model_type == "bert") return sizes_by(keys, model_type, read_bert);
  if (model_type == "roberta") return sizes_by(keys, model_type, read_roberta);
  if (model_type == "xlm-roberta") return sizes_by(keys, model_type, read_xlm_roberta);
  if (model_type == "distilbert") return sizes_by(keys, model_type, read_distilbert);
  if (model_type == "nomic_bert") return sizes_by(keys, model_type, read_nomic_bert);
  if (model_type == "electra") return sizes_by(keys, model_type, read_electra);
  if (model_type == "modernbert") return sizes_by(keys, model_type, read_modern_bert);
  if (model_type == "bart") return sizes_by(keys, model_type, read_bart, true);
  if (model_type == "pegasus") return sizes_by(keys, model_type, read_pegasus, true);
  if (model_type == "vit") return sizes_by(keys, model_type, read_vit);
  if (model_type == "clip") return sizes_by(keys, model_type, read_clip);
  if (model_type == "siglip") return sizes_by(keys, model_type, read_siglip);
  if (model_type == "t5") return sizes_by(keys, model_type, read_t5, true);
  if (model_type == "mt5") return sizes_by(keys, model_type, read_mt5, true);
  if (model_type == "umt5") return sizes_by(keys, model_type, read_umt5, true);
  if (model_type == "whisper") return sizes_by(keys, model_type, read_whisper, true);
  return sizes_of(decoder_spec(model_type, keys));
}

std::string family_features(const std::string& model_type) {
  if (model_type == "nomic_bert") return "encoder: rotary positions; heads for masked tokens, sequences and tokens";
  if (model_type == "modernbert")
    return "encoder: rotary positions, windows; heads for masked tokens, sequences, tokens, answers and multiple "
           "choice";
  if (model_type == "bart") return "encoder and decoder of text: learned positions";
  if (model_type == "pegasus") return "encoder and decoder of text: fixed positions";
  if (model_type == "bert" || model_type == "roberta" || model_type == "xlm-roberta" || model_type == "distilbert" ||
      model_type == "electra")
    return "encoder: heads for masked tokens, sequences, tokens, answers and multiple choice";
  if (model_type == "vit") return "encoder of images: head for image classes";
  if (model_type == "clip" || model_type == "siglip") return "encoders of images and texts: contrastive loss";
  if (model_type == "t5" || model_type == "mt5" || model_type == "umt5")
    return "encoder and decoder of text: relative positions, with or without gated MLP";
  if (model_type == "whisper") return "encoder of speech, decoder of text: reads log-mel features";
  DecoderSpec spec = decoder_spec(model_type, json::object());
  for (const DecoderFamily& family : decoder_families())  // files state the kinds of layers
    if (family.model_type == model_type && mixer_names(spec).empty())
      if (DecoderSpec small = decoder_spec(model_type, family.small); !mixer_names(small).empty())
        spec = std::move(small);
  return decoder_features(spec);
}

}  // namespace gantry::models
