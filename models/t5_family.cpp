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

constexpr const char* kT5 = "t5";
constexpr const char* kT5Architecture = "T5ForConditionalGeneration";
constexpr const char *kSeparateEncoder = "separate_encoder_embedding", *kSeparateDecoder = "separate_decoder_embedding";
constexpr const char *kT5Table = "shared.weight", *kEncoderTable = "encoder.embed_tokens.weight",
                     *kDecoderTable = "decoder.embed_tokens.weight", *kT5Head = "lm_head.weight";
constexpr const char* kRelativeBias = "relative_attention_bias.weight";
constexpr std::int64_t kMostPositions = std::int64_t{1} << 31;

const auto kReadT5 = with_shared_keys(read_t5, /*has_cross_attention=*/true);

T5Config t5_config(const json& keys) { return read_keys(keys, kT5, kReadT5); }

json t5_hugging_face_config(const json& keys) {
  json full = full_config_of(keys, kT5, kT5Architecture, kReadT5);
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

// By their registered names, which but for the bias are the files'.
std::vector<TensorName> t5_tensor_names(const json& keys) {
  const T5Config config = t5_config(keys);
  std::vector<TensorName> names;
  const auto add = [&](const std::string& name) { names.push_back({name, name}); };
  const auto add_attention = [&](const std::string& at, const char* kind) {
    for (const char* part : {"q", "k", "v", "o"}) add(fmt::format("{}.{}.{}.weight", at, kind, part));
  };
  add_tables(config, names);
  for (const bool decodes : {false, true}) {
    const std::string stack = decodes ? "decoder" : "encoder";
    const std::string own = stack + "." + kRelativeBias;
    names.push_back({own, fmt::format("{}.block.0.layer.0.SelfAttention.{}", stack, kRelativeBias)});
    for (std::int64_t layer = 0; layer < (decodes ? config.num_decoder_layers : config.num_layers); ++layer) {
      const std::string at = fmt::format("{}.block.{}.layer", stack, layer);
      const int last = decodes ? 2 : 1;
      add_attention(at + ".0", "SelfAttention");
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

// transformers ties those of the four tables that are equal in the files. tie_word_embeddings only says whether the
// inputs of the head are scaled.
std::vector<TiedTensor> t5_tied_tensors(const json& keys) {
  const bool scaled = t5_config(keys).scale_decoder_outputs;
  const auto head = [&](bool tied) { return json{{"tie_word_embeddings", tied}, {"scale_decoder_outputs", scaled}}; };
  return {{kT5Table},
          {kEncoderTable, {{kSeparateEncoder, true}}, {{kSeparateEncoder, false}}},
          {kDecoderTable, {{kSeparateDecoder, true}}, {{kSeparateDecoder, false}}},
          {kT5Head, head(false), head(true)}};
}

// Older files store a bias of cross-attention that nothing reads.
std::string t5_normalise(const std::string& name) {
  return name.ends_with(std::string("EncDecAttention.") + kRelativeBias) ? "" : name;
}

}  // namespace

ModelFamily t5_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<T5Impl>(t5_config(keys));
          },
          .tensor_names = t5_tensor_names,
          .hugging_face_config = t5_hugging_face_config,
          .model_type = kT5,
          .architectures = {kT5Architecture},
          .vocabulary_size = [](const json& keys) { return t5_config(keys).vocab_size; },
          .context_length = [](const json&) { return kMostPositions; },
          .task = [](const json&) -> std::string { return "pairs"; },
          .normalise_name = [](const json&, const std::string& name) { return t5_normalise(name); },
          .tied_tensors = t5_tied_tensors,
          .config_fingerprint = [](const json& keys) { return deciding_keys_of(keys, kT5, kReadT5); },
          .check = [](const json& keys) { return check_keys(*find_family_reader(kT5), keys); },
          .inputs = {"input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"}};
}

}  // namespace gantry::models
