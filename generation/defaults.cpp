// Reads generation_config.json and model configurations in the format of transformers.
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/generation/speech_keys.h"

namespace gantry {
namespace {

constexpr std::uintmax_t kMostBytes = 1 << 20;
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

void take_count(const JsonView& keys, const char* key, std::int64_t& value) {
  if (const auto found = keys.find(key)) value = found->count(kMostTokens);
}

void take_count(const JsonView& keys, const char* key, std::optional<std::int64_t>& value) {
  if (const auto found = keys.find(key)) value = found->count(kMostTokens);
}

void take_count(const JsonView& keys, const char* key, int& value) {
  if (const auto found = keys.find(key)) value = static_cast<int>(found->count(kMostTokens));
}

double number_in(const JsonView& value) {
  if (!value.json().is_number()) value.refuse("a number");
  return value.json().get<double>();
}

void take_number(const JsonView& keys, const char* key, double& value) {
  if (const auto found = keys.find(key)) value = number_in(*found);
}

std::vector<std::int64_t> tokens_in(const JsonView& list) {
  std::vector<std::int64_t> tokens;
  for (std::size_t i = 0; i < list.list().size(); ++i) tokens.push_back(list.element(i).count(kMostTokens));
  return tokens;
}

std::vector<std::int64_t> tokens_of_word(const JsonView& word) {
  if (word.list().empty()) word.refuse("a list of tokens");
  return tokens_in(word);
}

void take_tokens(const JsonView& keys, const char* key, std::vector<std::int64_t>& value) {
  if (const auto found = keys.find(key)) value = tokens_in(*found);
}

// One token or a list of them.
void take_one_or_more(const JsonView& keys, const char* key, std::vector<std::int64_t>& value) {
  const auto found = keys.find(key);
  if (!found) return;
  value = found->json().is_array() ? tokens_in(*found) : std::vector<std::int64_t>{found->count(kMostTokens)};
}

// In older files, -1 means that the key is not set.
bool is_absent(const JsonView& keys, const char* key) {
  const auto found = keys.find(key);
  return !found || found->json() == -1;
}

void take_forced_tokens(const JsonView& keys, GenerationOptions& options) {
  if (!is_absent(keys, "forced_bos_token_id")) take_count(keys, "forced_bos_token_id", options.forced_bos_token);
  if (!is_absent(keys, "forced_eos_token_id")) take_one_or_more(keys, "forced_eos_token_id", options.forced_eos_tokens);
}

void take_words(const JsonView& keys, const char* key, std::vector<std::vector<std::int64_t>>& value) {
  const auto found = keys.find(key);
  if (!found) return;
  for (std::size_t i = 0; i < found->list().size(); ++i) value.push_back(tokens_of_word(found->element(i)));
}

// Reads pairs of a list of tokens and a bias.
void take_biases(const JsonView& keys, const char* key, std::vector<SequenceBias>& value) {
  const auto found = keys.find(key);
  if (!found) return;
  for (std::size_t i = 0; i < found->list().size(); ++i) {
    const JsonView pair = found->element(i);
    if (pair.list().size() != 2) pair.refuse("a list of tokens and a number");
    value.push_back({tokens_of_word(pair.element(0)), number_in(pair.element(1))});
  }
}

// Reads the stop tokens of a model's configuration. Multimodal models may have them in the text_config of the
// decoder.
void take_stop_tokens_of_model(const JsonView& keys, std::vector<std::int64_t>& value) {
  if (const auto text = keys.find("text_config")) take_one_or_more(*text, "eos_token_id", value);
  take_one_or_more(keys, "eos_token_id", value);
}

void take_early_stopping(const JsonView& keys, EarlyStopping& value) {
  const auto found = keys.find("early_stopping");
  if (!found) return;
  if (found->json() != "never" && !found->json().is_boolean()) found->refuse("true, false or \"never\"");
  if (found->json() == "never")
    value = EarlyStopping::kNever;
  else
    value = found->flag() ? EarlyStopping::kYes : EarlyStopping::kNo;
}

// Unsupported keys that would change the tokens, with the number that disables them. null, false and empty
// values also disable them.
struct Foreign {
  const char* key;
  double off = 0;
};
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();  // no number disables the key
constexpr Foreign kForeign[] = {
    {"compression_ratio_threshold", kNoNumber},
    {"condition_on_prev_tokens"},
    {"constraints"},
    {"diversity_penalty"},
    {"dola_layers"},
    {"encoder_no_repeat_ngram_size"},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff"},
    {"eta_cutoff"},
    {"exponential_decay_length_penalty"},
    {"force_words_ids"},
    {"guidance_scale", 1},
    {"logprob_threshold", kNoNumber},
    {"no_speech_threshold", kNoNumber},
    {"num_beam_groups", 1},
    {"penalty_alpha"},
    {"remove_invalid_values"},
    {"renormalize_logits"},
    {"return_token_timestamps"},
    {"stop_strings"},
    {"watermarking_config"},
};

bool is_off(const nlohmann::json& value, double off) {
  if (value.is_number()) return value.get<double>() == off;
  return value.is_null() || value == false || value.empty() || value == "";
}

// Rejects these keys: without them the tokens would silently differ from those that the file's authors
// intended.
void refuse_foreign(const nlohmann::json& object, const std::string& path) {
  std::vector<std::string> asked;
  for (const auto& [key, off] : kForeign)
    if (const auto found = object.find(key); found != object.end() && !is_off(*found, off))
      asked.push_back(fmt::format("{}: {}", key, found->dump()));
  if (!asked.empty())
    throw InputError({path, fmt::format("the file sets {}, which Gantry does not support", fmt::join(asked, ", ")),
                      "the keys in docs/generation.md", "remove them to generate without them"});
}

void refuse_speech(const std::string& directory, const SpeechChoice& speech) {
  if (speech.language.empty() && speech.task.empty() && !speech.time_stamps) return;
  throw InputError(
      {directory,
       "the directory has no generation_config.json, which lists the tokens of languages, tasks and time stamps",
       "a Hugging Face directory with this file", "copy the model's file into it"});
}

}  // namespace

GenerationOptions generation_defaults(const std::string& directory, const SpeechChoice& speech) {
  GenerationOptions options;
  const bool is_checkpoint = path_exists(directory + "/" + kManifestName);
  const std::string files = is_checkpoint ? directory + "/" + kCompanionFolder : directory;
  const std::string path = files + "/generation_config.json", model = directory + "/config.json";
  const bool has_own = path_exists(path);
  if (!has_own) refuse_speech(directory, speech);
  if (is_checkpoint && !has_own) {
    const auto config = read_checkpoint_info(directory).model_config;
    take_stop_tokens_of_model(JsonView(config, directory + ": model configuration"), options.stop_tokens);
    return options;
  }
  if (!has_own && !path_exists(model)) return options;
  const auto object = read_json_file(has_own ? path : model, kMostBytes);
  const JsonView keys(object, has_own ? path : model);
  keys.object();
  if (!has_own) {
    take_stop_tokens_of_model(keys, options.stop_tokens);
    return options;
  }
  take_one_or_more(keys, "eos_token_id", options.stop_tokens);
  refuse_foreign(object, path);
  take_tokens(keys, "suppress_tokens", options.suppress_tokens);
  take_tokens(keys, "begin_suppress_tokens", options.begin_suppress_tokens);
  take_speech(keys, speech, options);
  take_count(keys, "max_new_tokens", options.max_new_tokens);
  take_count(keys, "max_length", options.max_length);
  take_count(keys, "min_new_tokens", options.min_new_tokens);
  take_count(keys, "min_length", options.min_length);
  take_number(keys, "repetition_penalty", options.repetition_penalty);
  take_count(keys, "no_repeat_ngram_size", options.no_repeat_ngram_size);
  take_words(keys, "bad_words_ids", options.bad_words);
  take_biases(keys, "sequence_bias", options.sequence_bias);
  take_forced_tokens(keys, options);
  options.sample = keys.flag_or("do_sample", options.sample);
  take_number(keys, "temperature", options.temperature);
  take_count(keys, "top_k", options.top_k);
  take_number(keys, "top_p", options.top_p);
  take_number(keys, "min_p", options.min_p);
  take_number(keys, "typical_p", options.typical_p);
  take_count(keys, "num_beams", options.num_beams);
  take_number(keys, "length_penalty", options.length_penalty);
  take_early_stopping(keys, options.early_stopping);
  take_count(keys, "num_return_sequences", options.num_return_sequences);
  return options;
}

}  // namespace gantry
