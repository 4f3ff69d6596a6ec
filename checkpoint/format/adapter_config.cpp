#include "gantry/checkpoint/format/adapter_config.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/checkpoint/format/adapter_files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/core/config/adapter_names.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

using nlohmann::json;

// Keys of adapter kinds that compute differently. They are rejected unless they are null, false or empty.
// Unknown keys are accepted, because every version of PEFT adds some.
constexpr const char* kOtherKinds[] = {
    "lora_bias",     "layers_to_transform", "layers_pattern",          "exclude_modules",    "layer_replication",
    "arrow_config",  "kasa_config",         "alora_invocation_tokens", "use_qalora",         "use_bdlora",
    "velora_config", "monteclora_config",   "megatron_config",         "ensure_weight_tying"};

// Values of init_lora_weights that do not change the base.
constexpr const char* kStartsOfBase[] = {"gaussian", "eva", "orthogonal", "mica"};

bool says_nothing(const json& value) {
  return value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty());
}

// Reads the keys of one file.
class AdapterKeys {
 public:
  explicit AdapterKeys(const std::string& directory)
      : path_(directory + "/" + kAdapterConfig), keys_(read_json_object(path_)) {}

  void require(const char* key, const char* value) const {
    if (const auto found = keys_.find(key); found != keys_.end() && *found != value)
      throw InputError({path_, fmt::format("{} is {}", key, found->dump()), value, ""});
  }
  // Some initial values change the base. The adapter then belongs to the changed base.
  void refuse_changed_base() const {
    const json start = keys_.value("init_lora_weights", json(nullptr));
    if (!start.is_string() || std::ranges::count(kStartsOfBase, start.get<std::string>()) > 0) return;
    throw InputError({path_,
                      fmt::format("init_lora_weights is {}, so the adapter may belong to a base that it has changed",
                                  start.dump(-1, ' ', false, json::error_handler_t::replace)),
                      "an adapter of the original base model",
                      "save it in PEFT with path_initial_model_for_weight_conversion"});
  }
  void refuse_other_kinds() const {
    require("peft_type", "LORA");
    require("bias", "none");
    for (const char* key : kOtherKinds)
      if (keys_.contains(key) && !says_nothing(keys_[key]))
        throw InputError({path_, fmt::format("{} is {}, which this version does not support", key, keys_[key].dump()),
                          "a plain LoRA adapter", "merge it into its base model with PEFT"});
  }
  template <class Number>
  Number number(const char* key, Number initial, double least, double most) const {
    return keys_.contains(key) ? checked<Number>(key, keys_[key], least, most) : initial;
  }
  bool flag(const char* key) const {
    if (!keys_.contains(key) || keys_[key].is_null()) return false;
    if (!keys_[key].is_boolean()) fail(key, keys_[key], "true or false");
    return keys_[key].get<bool>();
  }
  template <class Number>
  std::map<std::string, Number> pattern(const char* key, double most) const {
    std::map<std::string, Number> values;
    if (!keys_.contains(key) || says_nothing(keys_[key])) return values;
    if (!keys_[key].is_object()) fail(key, keys_[key], "an object");
    for (const auto& [name, value] : keys_[key].items())
      values[name] = checked<Number>(key, value, std::is_integral_v<Number> ? 1 : 1e-9, most);
    return values;
  }
  // A list of names, or `word` alone if `word` is not null.
  std::vector<std::string> names(const char* key, const char* word) const {
    if (!keys_.contains(key) || keys_[key].is_null()) return {};
    const json& value = keys_[key];
    if (word && value == word) return {word};
    if (value.is_string()) fail(key, value, "a list of names, because this version does not support expressions");
    std::vector<std::string> names;
    if (!value.is_array()) fail(key, value, "a list of names");
    for (const auto& each : value) {
      if (!each.is_string()) fail(key, value, "a list of names");
      names.push_back(each.get<std::string>());
    }
    return names;
  }
  // PEFT also has mappings from modules to lists. A plain list is for the embedding.
  std::vector<int> tokens(const char* key) const {
    if (!keys_.contains(key) || says_nothing(keys_[key])) return {};
    const json& value = keys_[key];
    const auto is_token = [](const json& each) { return each.is_number_integer() && each >= 0 && each <= 1'000'000; };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_token))
      fail(key, value, "a list of token ids for the embedding");
    const auto tokens = value.get<std::vector<int>>();
    if (std::set<int>(tokens.begin(), tokens.end()).size() < tokens.size()) fail(key, value, "each token once");
    return tokens;
  }
  std::string text(const char* key) const {
    return keys_.contains(key) && keys_[key].is_string() ? keys_[key].get<std::string>() : "";
  }
  [[noreturn]] void fail(const char* key, const json& value, const char* expected) const {
    throw InputError({path_, fmt::format("{} is {}", key, value.dump(-1, ' ', false, json::error_handler_t::replace)),
                      expected, ""});
  }

 private:
  template <class Number>
  Number checked(const char* key, const json& value, double least, double most) const {
    const bool fits = std::is_integral_v<Number> ? value.is_number_integer() : value.is_number();
    if (!fits || value.get<double>() < least || value.get<double>() > most)
      fail(key, value, std::is_integral_v<Number> ? "a whole number from 1" : "a number in its range");
    return value.get<Number>();
  }

  std::string path_;
  json keys_;
};

// A key that is set in addition to lora.path must have the value of the adapter's file.
template <class Value>
void take_stated(const char* key, const Value& stated, bool is_stated, const Value& read, const std::string& path) {
  if (is_stated && stated != read)
    throw ConfigError({std::string("lora.") + key, "the value differs from the one in " + path + "/" + kAdapterConfig,
                       "the adapter's value", "remove the key, because lora.path sets it"});
}

}  // namespace

bool is_adapter_directory(const std::string& path) { return path_exists(path + "/" + kAdapterConfig); }

LoraConfig read_adapter_config(const std::string& directory) {
  const AdapterKeys keys(directory);
  keys.refuse_other_kinds();
  keys.refuse_changed_base();
  LoraConfig lora;
  lora.r = keys.number<int>("r", 8, 1, 1 << 20);
  lora.alpha = keys.number<double>("lora_alpha", 8, 1e-9, 1e9);
  lora.dropout = keys.number<double>("lora_dropout", 0, 0, 0.999999);
  lora.target_modules = keys.names("target_modules", kAllLinear);
  const bool all_linear = lora.target_modules == std::vector<std::string>{kAllLinear};
  for (const auto& parameter : keys.names("target_parameters", nullptr)) {
    if (all_linear) keys.fail("target_parameters", parameter, "no entries in addition to all-linear");
    lora.target_modules.push_back(parameter);
  }
  if (lora.target_modules.empty()) keys.fail("target_modules", nullptr, "a list of names");
  lora.modules_to_save = keys.names("modules_to_save", nullptr);
  lora.trainable_token_indices = keys.tokens("trainable_token_indices");
  lora.rslora = keys.flag("use_rslora");
  lora.use_dora = keys.flag("use_dora");
  lora.rank_pattern = keys.pattern<int>("rank_pattern", 1 << 20);
  lora.alpha_pattern = keys.pattern<double>("alpha_pattern", 1e9);
  lora.path = directory;
  return lora;
}

LoraConfig resolve_lora(LoraConfig stated) {
  if (stated.path.empty()) return stated;
  LoraConfig read = read_adapter_config(stated.path);
  const std::string& path = stated.path;
  take_stated("r", stated.r, stated.r > 0, read.r, path);
  take_stated("alpha", stated.alpha, stated.alpha > 0, read.alpha, path);
  take_stated("target_modules", stated.target_modules, !stated.target_modules.empty(), read.target_modules, path);
  take_stated("modules_to_save", stated.modules_to_save, !stated.modules_to_save.empty(), read.modules_to_save, path);
  take_stated("trainable_token_indices", stated.trainable_token_indices, !stated.trainable_token_indices.empty(),
              read.trainable_token_indices, path);
  take_stated("rslora", stated.rslora, stated.rslora, read.rslora, path);
  take_stated("use_dora", stated.use_dora, stated.use_dora, read.use_dora, path);
  take_stated("rank_pattern", stated.rank_pattern, !stated.rank_pattern.empty(), read.rank_pattern, path);
  take_stated("alpha_pattern", stated.alpha_pattern, !stated.alpha_pattern.empty(), read.alpha_pattern, path);
  read.dropout = stated.dropout;  // dropout belongs to the run, not to the adapter
  return read;
}

std::string stated_base(const std::string& directory) { return AdapterKeys(directory).text("base_model_name_or_path"); }

}  // namespace gantry
