#include "gantry/trainer/sample_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/encoded_text.h"
#include "gantry/generation/generate.h"
#include "gantry/models/model_family.h"

namespace gantry {
namespace {

constexpr std::int64_t kSampleTokens = 240;  // prompt included

const models::ModelFamily& family_of(const Config& config) { return models::families().at(config.model.policy); }
nlohmann::json keys_of(const Config& config) { return nlohmann::json::parse(config.model.config_json); }

std::string tokenizer_of(const Config& config) {
  try {
    return choose_text_tokenizer(config.data.tokenizer, config.model.path,
                                 family_of(config).vocabulary_size(keys_of(config)));
  } catch (const ConfigError& error) {
    throw UsageError({"--sample", error.what(), "", "or remove --sample, and pass --tokenizer to gantry generate"});
  }
}

}  // namespace

SampleText::SampleText(std::string prompt, const Config& config)
    : prompt_(std::move(prompt)),
      text_(tokenizer_of(config), {config.data.bos, config.data.eos}),
      positions_(family_of(config).context_length(keys_of(config))) {}

std::string SampleText::make(Boosted& boosted, Plugin& plugin, const std::function<bool()>& ends) const {
  const auto room = std::min(kSampleTokens, positions_);
  TokenIds tokens = text_.encode(prompt_);
  if (const auto most = room / 2; static_cast<std::int64_t>(tokens.size()) > most)
    tokens.erase(tokens.begin(), tokens.end() - most);
  const auto made = generate(boosted, plugin, {tokens}, {.max_length = room, .vocabulary = text_.size(), .ends = ends});
  if (plugin.mesh().world_group().rank() != 0) return "";
  tokens.insert(tokens.end(), made.front().tokens.begin(), made.front().tokens.end());
  std::string text = valid_utf8(text_.decode(tokens));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c != '\n' && (c < 32 || c == 127); }, '.');
  return text;
}

}  // namespace gantry
