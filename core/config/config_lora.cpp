#include <fmt/format.h>
#include <regex>
#include <set>

#include "gantry/core/config.h"
#include "gantry/core/config/adapter_names.h"
#include "gantry/core/config/config_training.h"

namespace gantry {
namespace {

// PEFT's defaults.
constexpr int kRank = 8;
constexpr double kAlpha = 8;
constexpr int kMostRank = 1 << 20;

// Reads "all-linear" or a list.
void read_targets(ConfigSection& section, LoraConfig& lora) {
  const YAML::Node node = section.node("target_modules");
  if (!node.IsScalar()) return section.texts("target_modules", lora.target_modules);
  std::string word;
  section.text("target_modules", word, {"all-linear"});
  if (!word.empty()) lora.target_modules = {word};
}

template <class Number>
void read_pattern(ConfigFaults& faults, ConfigSection& section, const char* key, std::map<std::string, Number>& values,
                  double most) {
  const YAML::Node node = section.node(key);
  if (!node.IsDefined()) return;
  if (!node.IsMap())
    return section.fault(key, "the value is not a mapping", "a mapping such as {\"layers.0.self_attn.q_proj\": 4}");
  visit_keys(node, std::string("lora.") + key, faults, [&](const YAML::Node& name, const YAML::Node& value) {
    const auto number = value.IsScalar() ? parse_number(value.Scalar()) : std::nullopt;
    const bool fits =
        number && *number > 0 && *number <= most && static_cast<double>(static_cast<Number>(*number)) == *number;
    if (fits)
      values[name.Scalar()] = static_cast<Number>(*number);
    else
      section.fault(key, fmt::format("the value for '{}' is not valid", name.Scalar()),
                    std::is_integral_v<Number> ? "a whole number from 1" : "a number above 0");
  });
}

void read_tokens(ConfigSection& section, LoraConfig& lora) {
  constexpr const char* kKey = "trainable_token_indices";
  const YAML::Node node = section.node(kKey);
  if (!node.IsDefined()) return;
  if (!node.IsSequence()) return section.fault(kKey, "the value is not a list", "a list of token ids");
  const auto tokens = section.integers(kKey, 0);
  if (!tokens) return;
  lora.trainable_token_indices = *tokens;
  std::set<int> known;
  for (const int token : *tokens)
    if (!known.insert(token).second)
      return section.fault(kKey, fmt::format("token {} is listed twice", token), "each token once");
}

void read_start(ConfigSection& section, LoraConfig& lora) {
  constexpr const char* kKey = "init_lora_weights";
  section.text(kKey, lora.init_lora_weights);
  const std::string& start = lora.init_lora_weights;
  if (!std::regex_match(start, std::regex("default|gaussian|pissa|pissa_niter_[1-9][0-9]?|loftq")))
    section.fault(kKey, fmt::format("'{}' is not supported", start),
                  "default, gaussian, pissa, pissa_niter_N with N from 1 to 99, or loftq");
  else if (start != "default" && !lora.path.empty())
    section.fault(kKey, "the key has no effect with lora.path, which has the values of the adapters", "",
                  "remove the key");
}

// The base that these values are computed from.
void check_start(ConfigSection& section, const Config& config) {
  const std::string& start = config.lora.init_lora_weights;
  const bool is_quantised = !config.model.quantize.empty();
  if (start == kLoftq && !is_quantised)
    section.fault("init_lora_weights",
                  "loftq approximates the errors of a quantized base, but the base is not quantized", "model.quantize",
                  "set model.quantize, or remove the key");
  if (start == kLoftq && config.model.quantize == "mxfp4")
    section.fault("init_lora_weights",
                  "loftq approximates the errors of quantized linear layers, but mxfp4 encodes experts only",
                  "model.quantize: nf4, fp4, int8 or fp8", "remove one of the two keys");
  if (start == kLoftq && config.model.path.empty())
    section.fault("init_lora_weights", "loftq needs the weights of a base model, but model.path is not set",
                  "model.path", "set model.path, or remove the key");
  if (start == kLoftq && config.lora.use_dora)
    section.fault("init_lora_weights",
                  "loftq is not supported with use_dora, whose norms are those of the quantized base", "one of the two",
                  "remove one of the two keys");
  if (start.starts_with(kPissa) && is_quantised)
    section.fault(
        "init_lora_weights",
        fmt::format("{} changes the weights of the base, but model.quantize keeps them in 4 or 8 bits", start),
        "loftq, or a base without model.quantize", "remove one of the two keys");
}

void check_targets(ConfigSection& section, const LoraConfig& lora) {
  if (lora.path.empty() && lora.target_modules.empty())
    section.fault("target_modules", "the list is missing",
                  "a list of linear layers such as [q_proj, v_proj], or all-linear",
                  "add the list, or set lora.path to a PEFT adapter");
  if (lora.target_modules.size() > 1)
    for (const auto& name : lora.target_modules)
      if (name == "all-linear")
        section.fault("target_modules", "the list contains all-linear and other names", "either all-linear or names");
}

}  // namespace

void read_lora(ConfigFaults& faults, ConfigSection& root, Config& config) {
  const YAML::Node node = root.node("lora");
  if (!node.IsDefined()) return;
  LoraConfig& lora = config.lora;
  ConfigSection section(faults, "lora", node);
  section.text("path", lora.path);
  if (lora.path.empty()) {
    lora.r = kRank;
    lora.alpha = kAlpha;
  }
  section.integer("r", lora.r, 1, kMostRank);
  section.number("alpha", lora.alpha, 0, 1e9, /*open_below=*/true);
  section.number("dropout", lora.dropout, 0, 1);
  read_targets(section, lora);
  section.texts("modules_to_save", lora.modules_to_save);
  read_tokens(section, lora);
  section.flag("rslora", lora.rslora);
  section.flag("use_dora", lora.use_dora);
  section.number("loraplus_lr_ratio", lora.loraplus_lr_ratio, 0, 1e9, /*open_below=*/true);
  read_pattern(faults, section, "rank_pattern", lora.rank_pattern, kMostRank);
  read_pattern(faults, section, "alpha_pattern", lora.alpha_pattern, 1e9);
  read_start(section, lora);
  check_start(section, config);
  check_targets(section, lora);
  section.finish();
}

}  // namespace gantry
