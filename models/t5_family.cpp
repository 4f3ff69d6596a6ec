#include "gantry/models/t5_family.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/t5.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char *kSeparateEncoder = "separate_encoder_embedding", *kSeparateDecoder = "separate_decoder_embedding";
constexpr const char *kT5Table = "shared.weight", *kEncoderTable = "encoder.embed_tokens.weight",
                     *kDecoderTable = "decoder.embed_tokens.weight", *kT5Head = "lm_head.weight";
constexpr const char* kRelativeBias = "relative_attention_bias.weight";
constexpr std::int64_t kMostPositions = std::int64_t{1} << 31;

struct T5Names {
  std::string model_type, architecture;
  T5Config (*read)(ConfigReader& reader);

  auto reads() const { return with_shared_keys(read, /*has_cross_attention=*/true); }
};

T5Config t5_config(const T5Names& family, const json& keys) {
  return read_keys(keys, family.model_type, family.reads());
}

json t5_hugging_face_config(const T5Names& family, const json& keys) {
  json full = full_config_of(keys, family.model_type, family.architecture, family.reads());
  full["is_encoder_decoder"] = true;
  for (const char* key : {kSeparateEncoder, kSeparateDecoder})
    if (full[key] == false) full.erase(key);
  return full;
}

// The shared table may have the name of any tensor that is tied to it.
void add_tables(const T5Config& config, std::vector<TensorName>& names) {
  TensorName shared{kT5Table, kT5Table};
  const auto add = [&](const char* table, bool separate) {
    if (separate)
      names.push_back({table, table});
    else
      shared.other_names.emplace_back(table);
  };
  add(kEncoderTable, config.separate_encoder_embedding);
  add(kDecoderTable, config.separate_decoder_embedding);
  if (config.tie_word_embeddings) shared.other_names.emplace_back(kT5Head);
  if (config.has_shared_table()) names.insert(names.begin(), shared);
}

// The registered names, which are also the names in files, except for the bias.
std::vector<TensorName> t5_tensor_names(const T5Config& config) {
  std::vector<TensorName> names;
  const auto add = [&](const std::string& name) { names.push_back({name, name}); };
  const auto add_attention = [&](const std::string& at, const char* kind) {
    for (const char* part : {"q", "k", "v", "o"}) add(fmt::format("{}.{}.{}.weight", at, kind, part));
  };
  add_tables(config, names);
  for (const bool decodes : {false, true}) {
    const std::string stack = decodes ? "decoder" : "encoder";
    if (!config.bias_in_each_layer)
      names.push_back({fmt::format("{}.{}", stack, kRelativeBias),
                       fmt::format("{}.block.0.layer.0.SelfAttention.{}", stack, kRelativeBias)});
    for (std::int64_t layer = 0; layer < (decodes ? config.num_decoder_layers : config.num_layers); ++layer) {
      const std::string at = fmt::format("{}.block.{}.layer", stack, layer);
      const int last = decodes ? 2 : 1;
      add_attention(at + ".0", "SelfAttention");
      if (config.bias_in_each_layer) add(fmt::format("{}.0.SelfAttention.{}", at, kRelativeBias));
      if (decodes) add_attention(at + ".1", "EncDecAttention");
      for (const char* part : {"wi", "wi_0", "wi_1", "wo"})
        if (part == std::string("wo") || config.gated == (part != std::string("wi")))
          add(fmt::format("{}.{}.DenseReluDense.{}.weight", at, last, part));
      for (int part = 0; part <= last; ++part) add(fmt::format("{}.{}.layer_norm.weight", at, part));
    }
    add(stack + ".final_layer_norm.weight");
  }
  if (!config.tie_word_embeddings) add(kT5Head);
  return names;
}

// transformers ties those of the four tables that are equal in the files. tie_word_embeddings of T5 only
// states whether the inputs of the head are scaled.
std::vector<TiedTensor> t5_tied_tensors(const T5Config& config) {
  const auto head = [&](bool tied) {
    json keys = {{"tie_word_embeddings", tied}};
    if (config.family != "mt5") keys["scale_decoder_outputs"] = config.scale_decoder_outputs;
    return keys;
  };
  return {{kT5Table},
          {kEncoderTable, {{kSeparateEncoder, true}}, {{kSeparateEncoder, false}}},
          {kDecoderTable, {{kSeparateDecoder, true}}, {{kSeparateDecoder, false}}},
          {kT5Head, head(false), head(true)}};
}

// Older files store a bias of cross-attention that nothing reads.
std::string t5_normalise(const std::string& name) {
  return name.ends_with(std::string("EncDecAttention.") + kRelativeBias) ? "" : name;
}

ModelFamily family_of_t5(const T5Names& family) {
  const auto config = [family](const json& keys) { return t5_config(family, keys); };
  return {.build = [config](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<T5Impl>(config(keys));
          },
          .tensor_names = [config](const json& keys) { return t5_tensor_names(config(keys)); },
          .hugging_face_config = [family](const json& keys) { return t5_hugging_face_config(family, keys); },
          .model_type = family.model_type,
          .architectures = {family.architecture},
          .vocabulary_size = [config](const json& keys) { return config(keys).vocab_size; },
          .context_length = [](const json&) { return kMostPositions; },
          .task = [](const json&) -> std::string { return "pairs"; },
          .normalise_name = [](const json&, const std::string& name) { return t5_normalise(name); },
          .tied_tensors = [config](const json& keys) { return t5_tied_tensors(config(keys)); },
          .config_fingerprint =
              [family](const json& keys) { return deciding_keys_of(keys, family.model_type, family.reads()); },
          .check = [family](const json& keys) { return check_keys(*find_family_reader(family.model_type), keys); },
          .inputs = {"input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"}};
}

}  // namespace

ModelFamily t5_family() { return family_of_t5({"t5", "T5ForConditionalGeneration", read_t5}); }
ModelFamily mt5_family() { return family_of_t5({"mt5", "MT5ForConditionalGeneration", read_mt5}); }
ModelFamily umt5_family() { return family_of_t5({"umt5", "UMT5ForConditionalGeneration", read_umt5}); }

}  // namespace gantry::models
