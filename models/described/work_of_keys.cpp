#include "gantry/models/described/work_of_keys.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/error.h"
#include "gantry/core/io/python_json.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/models/described/model_outline.h"
#include "gantry/models/described/sentence_modules.h"
#include "gantry/models/described/vision_modules.h"

namespace gantry::models {
namespace {

using nlohmann::json;

double label_weights(const json& keys, double hidden) { return hidden * static_cast<double>(label_count(keys)); }

// The work of the head; by default, it is a head for masked language modelling. Heads that read only the
// first token do not count as work.
double bert_head(const json& keys, double hidden, std::int64_t vocabulary) {
  if (has_key(keys, kSentenceModules)) return 0;
  const json named = keys.value("architectures", json("ForMaskedLM"));
  const json& first = named.is_array() && !named.empty() ? named.front() : named;
  const std::string architecture = first.is_string() ? first.get<std::string>() : "";
  if (architecture.ends_with("ForQuestionAnswering")) return 2 * hidden;
  if (architecture.ends_with("ForTokenClassification")) return label_weights(keys, hidden);
  const auto words = static_cast<double>(size_key(keys, "vocab_size", vocabulary));
  return architecture.ends_with("ForMaskedLM") ? hidden * (words + hidden) : 0;
}

LayerWork bert_work(const json& keys, int layers, std::int64_t vocabulary) {
  const auto hidden = static_cast<double>(size_key(keys, "hidden_size", 768));
  const auto inner = static_cast<double>(size_key(keys, "intermediate_size", 3072));
  return {.layers = std::vector<double>(layers, hidden * (4 * hidden + 2 * inner)),
          .last = bert_head(keys, hidden, vocabulary)};
}

// The head computes in the width of the embeddings.
LayerWork electra_work(const json& keys, int layers) {
  const auto hidden = static_cast<double>(size_key(keys, "hidden_size", 256));
  const auto inner = static_cast<double>(size_key(keys, "intermediate_size", 1024));
  const auto width = static_cast<double>(size_key(keys, "embedding_size", 128));
  const auto words = static_cast<double>(size_key(keys, "vocab_size", 30522));
  const bool is_masked = bert_architecture(keys, "Electra").ends_with("ForMaskedLM");
  return {.layers = std::vector<double>(layers, hidden * (4 * hidden + 2 * inner)),
          .last = is_masked ? width * (words + hidden) : bert_head(keys, hidden, 30522)};
}

LayerWork distilbert_work(const json& keys, int layers) {
  const auto hidden = static_cast<double>(size_key(keys, "dim", 768));
  const auto inner = static_cast<double>(size_key(keys, "hidden_dim", 3072));
  return {.layers = std::vector<double>(layers, hidden * (4 * hidden + 2 * inner)),
          .last = bert_head(keys, hidden, 30522)};
}

LayerWork nomic_bert_work(const json& keys, int layers) {
  const auto hidden = static_cast<double>(size_key(keys, "hidden_size", size_key(keys, "n_embd", 768)));
  const auto inner = static_cast<double>(size_key(keys, "intermediate_size", size_key(keys, "n_inner", 3072)));
  const std::int64_t heads = size_key(keys, "num_attention_heads", size_key(keys, "n_head", 12));
  const double width = has_key(keys, "head_dim") ? static_cast<double>(heads * size_key(keys, "head_dim", 64)) : hidden;
  return {.layers = std::vector<double>(layers, hidden * (4 * width + 3 * inner)),
          .last = bert_head(keys, hidden, 30522)};
}

// Heads that read each token have one more layer.
LayerWork modern_bert_work(const json& keys, int layers) {
  const auto hidden = static_cast<double>(size_key(keys, "hidden_size", 768));
  const auto inner = static_cast<double>(size_key(keys, "intermediate_size", 1152));
  const std::string architecture = architecture_key(keys);
  const bool has_further =
      architecture.ends_with("ForQuestionAnswering") || architecture.ends_with("ForTokenClassification");
  return {.layers = std::vector<double>(layers, hidden * (4 * hidden + 3 * inner)),
          .last = bert_head(keys, hidden, 50368) + (has_further ? hidden * hidden : 0)};
}

LayerWork vit_work(const json& keys, int layers) {
  const auto hidden = static_cast<double>(size_key(keys, "hidden_size", 768));
  const auto inner = static_cast<double>(size_key(keys, "intermediate_size", 3072));
  return {.layers = std::vector<double>(layers, hidden * (4 * hidden + 2 * inner))};
}

// A layer of the decoder has two attentions.
LayerWork pair_work(std::int64_t encoder, std::int64_t decoder, double attention, double encoder_mlp,
                    double decoder_mlp) {
  LayerWork work{std::vector<double>(encoder, attention + encoder_mlp)};
  work.layers.insert(work.layers.end(), decoder, 2 * attention + decoder_mlp);
  return work;
}

LayerWork t5_work(const json& keys, const T5Config& defaults) {
  const std::int64_t layers = size_key(keys, "num_layers", defaults.num_layers);
  const auto width = static_cast<double>(size_key(keys, "d_model", defaults.d_model));
  const auto inner =
      static_cast<double>(size_key(keys, "num_heads", defaults.num_heads) * size_key(keys, "d_kv", defaults.d_kv));
  const json projections = keys.value("feed_forward_proj", json(defaults.gated ? "gated-gelu" : "relu"));
  const bool gated = projections.is_string() && projections.get<std::string>().starts_with("gated-");
  const double mlp = (gated ? 3 : 2) * width * static_cast<double>(size_key(keys, "d_ff", defaults.d_ff));
  // A relative position bias of each layer counts as a matrix.
  const std::int64_t buckets = size_key(keys, "relative_attention_num_buckets", 32);
  const std::int64_t biases =
      defaults.bias_in_each_layer ? buckets * size_key(keys, "num_heads", defaults.num_heads) : 0;
  const double rest = mlp + static_cast<double>(biases);
  LayerWork work = pair_work(layers, size_key(keys, "num_decoder_layers", layers), 4 * width * inner, rest, rest);
  work.last = width * static_cast<double>(size_key(keys, "vocab_size", defaults.vocab_size));
  return work;
}

LayerWork stacks_work(const json& keys, const StacksConfig& defaults) {
  const auto width = static_cast<double>(size_key(keys, "d_model", defaults.d_model));
  const auto mlp = [&](const char* key, std::int64_t initial) {
    return 2 * width * static_cast<double>(size_key(keys, key, initial));
  };
  LayerWork work =
      pair_work(size_key(keys, "encoder_layers", defaults.encoder_layers),
                size_key(keys, "decoder_layers", defaults.decoder_layers), 4 * width * width,
                mlp("encoder_ffn_dim", defaults.encoder_ffn_dim), mlp("decoder_ffn_dim", defaults.decoder_ffn_dim));
  work.last = width * static_cast<double>(size_key(keys, "vocab_size", defaults.vocab_size));
  return work;
}

// The multiplications of a feature in a layer of the tower. Images of one size have a known number of keys.
double tower_layer_work(const VisionSpec& vision) {
  const bool has_one_size = !vision.grid_tower && !vision.pixtral;
  const double keys = has_one_size ? static_cast<double>(vision.places()) : 0;
  return patches_of_feature(vision) *
         (tower_layer_weights(vision) + 2 * keys * static_cast<double>(vision.tower.hidden));
}

}  // namespace

LayerWork layer_work_of(const DecoderSpec& spec) {
  LayerWork work{.layers = {}, .first = entry_weights(spec), .last = head_weights(spec), .mtp = mtp_depths(spec)};
  if (spec.vision) work.layers.assign(tower_layers(spec), tower_layer_work(*spec.vision));
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const bool repeats = index > 0 && spec.layers[index] == spec.layers[index - 1];
    work.layers.push_back(repeats ? work.layers.back() : layer_weights(spec.layers[index], spec.hidden));
  }
  return work;
}

AttentionHeads fewest_heads(const DecoderSpec& spec) {
  std::vector<std::int64_t> heads, key_heads;
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.has_attention()) continue;
    const AttentionSpec& attention = layer.attention;
    heads.push_back(attention.heads);
    key_heads.push_back(attention.latent ? attention.heads : attention.key_heads);
  }
  if (heads.empty()) return {0, 0};
  return {static_cast<int>(*std::min_element(heads.begin(), heads.end())),
          static_cast<int>(*std::min_element(key_heads.begin(), key_heads.end()))};
}

std::string context_objection(const DecoderSpec& spec, int context, int tensor) {
  for (std::size_t index = 0; index < spec.layers.size() && context > 1; ++index) {
    const MixerSpec& mixer = spec.layers[index].mixer;
    if (!mixer || mixer->largest_context(tensor) >= context) continue;
    return fmt::format("layer {} of the {} model has {} with {} heads or channels on a rank of parallel.tensor {}",
                       index, spec.family, mixer->name(), mixer->largest_context(tensor), tensor);
  }
  return "";
}

void require_context(const DecoderSpec& spec, int context, int tensor) {
  const std::string reason = context_objection(spec, context, tensor);
  if (reason.empty()) return;
  throw ConfigError({"parallel.context", fmt::format("the value is {}, but {}", context, reason),
                     "at most as many ranks as heads or channels",
                     "set a smaller parallel.context or parallel.tensor"});
}

json keys_of_model(const ModelConfig& model) {
  json keys = json::object();
  if (std::ifstream file(model.path + "/config.json"); !model.path.empty() && file)
    keys = json::parse(without_bare_infinity(std::string(std::istreambuf_iterator<char>(file), {})), nullptr, false);
  if (!model.path.empty() && keys.is_object()) add_sentence_modules(keys, model.path);
  if (!model.config_json.empty() && keys.is_object()) override_keys(keys, json::parse(model.config_json));
  return keys;
}

namespace {

std::string family_of(const json& keys, const std::string& family) {
  const json type = keys.is_object() ? keys.value("model_type", json()) : json();
  return family.empty() && type.is_string() ? type.get<std::string>() : family;
}

}  // namespace

std::optional<DecoderSpec> described_decoder(const json& keys, const std::string& family) {
  const std::string name = family_of(keys, family);
  const auto& known = decoder_families();
  const bool described =
      std::any_of(known.begin(), known.end(), [&](const DecoderFamily& one) { return one.model_type == name; });
  if (described) return decoder_spec(name, keys);
  return outlines().contains(name) ? outlines().at(name)(keys).spec : std::nullopt;
}

int layers_of(const json& keys, const std::string& family) {
  const std::string name = family_of(keys, family);
  if (outlines().contains(name)) return static_cast<int>(outlines().at(name)(keys).work.layers.size());
  if (keys.is_object() && flag_key(keys, kImageEncoder, false))
    if (const auto spec = described_decoder(keys, family))
      return tower_layers(*spec) + static_cast<int>(spec->layers.size());
  return layers_in(keys);
}

LayerWork layer_work_in(const json& keys, int layers, const std::string& family) {
  const std::string name = family_of(keys, family);
  if (name == "bert") return bert_work(keys, layers, 30522);
  if (name == "roberta") return bert_work(keys, layers, 50265);
  if (name == "xlm-roberta") return bert_work(keys, layers, 30522);
  if (name == "distilbert") return distilbert_work(keys, layers);
  if (name == "nomic_bert") return nomic_bert_work(keys, layers);
  if (name == "electra") return electra_work(keys, layers);
  if (name == "modernbert") return modern_bert_work(keys, layers);
  if (name == "bart" || name == "pegasus") return stacks_work(keys, BartConfig());
  if (name == "vit") return vit_work(keys, layers);
  if (name == "t5" || name == "mt5" || name == "umt5") return t5_work(keys, t5_defaults(name));
  if (name == "whisper") return stacks_work(keys, WhisperConfig());
  if (outlines().contains(name)) return outlines().at(name)(keys).work;
  const auto spec = described_decoder(keys, family);
  return spec ? layer_work_of(*spec) : LayerWork{std::vector<double>(layers, 1.0)};
}

}  // namespace gantry::models
