#include "gantry/models/described/family_reader.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include "gantry/core/error.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/contrastive_spec.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/keys_of_family.h"

namespace gantry::models {
namespace {

using nlohmann::json;

std::vector<FamilyReader> all_readers() {
  std::vector<FamilyReader> readers = {
      {"bert",
       "BertForMaskedLM",
       with_shared_keys(read_bert),
       {"directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
        "pooler_size_per_head", "pooler_type"}},
      {"roberta", "RobertaForMaskedLM", with_shared_keys(read_roberta), {}},
      {"xlm-roberta", "XLMRobertaForMaskedLM", with_shared_keys(read_xlm_roberta), {"output_past"}},
      {"distilbert", "DistilBertForMaskedLM", with_shared_keys(read_distilbert), {"tie_weights_"}},
      {"nomic_bert",
       "NomicBertForMaskedLM",
       with_shared_keys(read_nomic_bert),
       {"dense_seq_output", "embd_pdrop", "fused_bias_fc", "fused_dropout_add_ln", "max_trained_positions",
        "pad_vocab_size_multiple", "rotary_emb_scale_base", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj", "use_flash_attn", "use_xentropy",
        "layer_norm_training", "last_layer_subset", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights"}},
      {"modernbert",
       "ModernBertForMaskedLM",
       with_shared_keys(read_modern_bert),
       {"cls_token_id", "deterministic_flash_attn", "initializer_cutoff_factor", "layer_norm_eps",
        "position_embedding_type", "reference_compile", "repad_logits_with_grad", "sep_token_id", "sparse_prediction"}},
      {"electra", "ElectraForMaskedLM", with_shared_keys(read_electra), {}},
      {"bart", "BartForConditionalGeneration", with_shared_keys(read_bart, true), {}},
      {"pegasus", "PegasusForConditionalGeneration", with_shared_keys(read_pegasus, true), {}},
      {"t5", "T5ForConditionalGeneration", with_shared_keys(read_t5, true), {}},
      {"mt5", "MT5ForConditionalGeneration", with_shared_keys(read_mt5, true), {}},
      {"umt5", "UMT5ForConditionalGeneration", with_shared_keys(read_umt5, true), {"scalable_attention"}},
      {"vit", "ViTForImageClassification", with_shared_keys(read_vit), {}},
      {"clip", "CLIPModel", with_shared_keys(read_clip), {}},
      {"siglip", "SiglipModel", with_shared_keys(read_siglip), {}},
      {"whisper", "WhisperForConditionalGeneration", with_shared_keys(read_whisper, true), {}}};
  for (const DecoderFamily& family : decoder_families())
    readers.push_back({family.model_type, family.architecture,
                       [&family](ConfigReader& reader) { read_decoder(family, reader); }, family.harmless,
                       family.files.other_parts});
  std::sort(readers.begin(), readers.end(),
            [](const FamilyReader& a, const FamilyReader& b) { return a.model_type < b.model_type; });
  return readers;
}

[[noreturn]] void refuse_unknown(const std::string& key, const CheckedKeys& checked, const std::string& model_type) {
  const std::string near = nearest_name(key, checked.known);
  throw ConfigError({"model.config." + key, "unknown key of " + model_type,
                     "a key of Hugging Face's config.json for " + model_type,
                     near.empty() ? "remove it" : "did you mean '" + near + "'?"});
}

// Removes the value that an error of a model's keys names, of `keys` or of a mapping in it. False if the error names no
// key, one that is not set, or `architectures`, which decides about the keys of the head.
bool remove_refused(json& keys, const std::string& error) {
  constexpr std::string_view kPlace = "model.config.";
  if (!error.starts_with(kPlace)) return false;
  const std::string path = error.substr(kPlace.size(), error.find(':') - kPlace.size());
  const std::string key = path.substr(path.rfind('.') + 1);
  if (key == "architectures") return false;
  if (keys.erase(key) > 0) return true;
  return std::ranges::any_of(keys, [&](json& part) { return part.is_object() && part.erase(key) > 0; });
}

// The keys that are unknown by default and resemble a key that is not set.
CheckedKeys misspelt_keys(const CheckKeys& check, const json& keys) try {
  CheckedKeys misspelt{.known = check(json::object()).known, .unknown = {}};
  for (const auto& [key, value] : keys.items()) {
    if (std::ranges::count(misspelt.known, key) > 0) continue;
    const std::string near = nearest_name(key, misspelt.known);
    if (!near.empty() && !keys.contains(near)) misspelt.unknown.push_back(key);
  }
  return misspelt;
} catch (const ConfigError&) {  // the defaults alone are refused too
  return {};
}

}  // namespace

const std::vector<FamilyReader>& family_readers() {
  static const std::vector<FamilyReader> readers = all_readers();
  return readers;
}

const FamilyReader* find_family_reader(const std::string& model_type) {
  for (const FamilyReader& reader : family_readers())
    if (reader.model_type == model_type) return &reader;
  return nullptr;
}

void refuse_model_type(const std::string& where, const std::string& model_type, const std::vector<std::string>& known) {
  const std::string near = nearest_name(model_type, known);
  throw ConfigError({where, "model_type '" + model_type + "' is not supported by Gantry",
                     fmt::format("one of {}", fmt::join(known, ", ")),
                     near.empty() ? "register a model family for it, and name its library with --set 'libraries=[FILE]'"
                                  : "did you mean '" + near + "'?"});
}

CheckedKeys check_keys(const FamilyReader& family, const json& keys) {
  ConfigReader reader(keys, family.model_type);
  family.read(reader);
  for (const auto& key : family.harmless) reader.ignore(key);
  CheckedKeys checked{reader.known(), reader.unknown()};
  checked.known.insert(checked.known.end(), common_keys().begin(), common_keys().end());
  return checked;
}

std::string judge_unknown_keys(const CheckedKeys& checked, const std::string& model_type, const std::string& rule,
                               const json& file, const std::string& where) {
  std::vector<std::string> passed;
  for (const auto& key : checked.unknown) {
    const bool is_in_file = file.is_object() && (file.contains(key) || file.contains(key.substr(0, key.find('.'))));
    if (rule == "refuse" || !is_in_file) refuse_unknown(key, checked, model_type);
    passed.push_back(key);
  }
  if (passed.empty()) return "";
  const std::string count = passed.size() == 1 ? "1 key that is" : fmt::format("{} keys that are", passed.size());
  return fmt::format("{}: {} unknown to {}: {}; they have no effect; set model.unknown_keys: refuse to reject them",
                     where, count, model_type, fmt::join(passed, ", "));
}

std::string judge_before_values(const CheckKeys& check, const json& keys,
                                const std::function<std::string(const CheckedKeys& checked)>& judge) {
  json accepted = keys;
  std::exception_ptr refusal;
  std::optional<CheckedKeys> checked;
  while (!checked) {
    try {
      checked = check(accepted);
    } catch (const ConfigError& error) {
      if (!refusal) refusal = std::current_exception();
      if (!remove_refused(accepted, error.what())) checked = misspelt_keys(check, keys);
    }
  }
  const std::string warning = judge(*checked);
  if (refusal) std::rethrow_exception(refusal);
  return warning;
}

}  // namespace gantry::models
