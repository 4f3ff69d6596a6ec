#include "gantry/models/described/rotary_keys.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/models/described/config_keys.h"

namespace gantry::models {
namespace {

using nlohmann::json;

const std::vector<std::string> kRotaryKeys = {"rope_type",
                                              "type",
                                              "rope_theta",
                                              "factor",
                                              "partial_rotary_factor",
                                              "original_max_position_embeddings",
                                              "low_freq_factor",
                                              "high_freq_factor",
                                              "beta_fast",
                                              "beta_slow",
                                              "truncate",
                                              "mscale",
                                              "mscale_all_dim",
                                              "attention_factor",
                                              "short_factor",
                                              "long_factor"};
// The keys of positions in three rows.
constexpr const char* kSections = "mrope_section";
constexpr const char* kInterleavedRows = "mrope_interleaved";

// transformers would pass over these.
void refuse_keys_of_no_kind(const json& scaling, const json& newer) {
  if (!newer.empty()) refuse_key("rope_parameters", newer, "a mapping for each kind of layers");
  if (has_key(scaling, "type") && scaling["type"] != "default" && !has_key(scaling, "rope_type"))
    refuse_key("rope_scaling.type", scaling["type"], "the newer spelling rope_type");
}

// rope_parameters and the older rope_scaling. Both can be present if they agree.
json scaling_keys(ConfigReader& reader, const std::string& layers, const RotaryDefaults& defaults) {
  json scaling = reader.mapping("rope_scaling"), newer = reader.mapping("rope_parameters");
  if (has_rotary_for_each_kind(reader)) {
    newer = newer.value(layers, json::object());
    if (layers != "full_attention") scaling = json::object();             // the older spelling is that of full layers
    if (newer.is_object() && newer.value("truncate", json()) == false) {  // which transformers reads outside of it
      reader.pass_over("rope_parameters." + layers + ".truncate");
      newer.erase("truncate");
    }
  } else if (defaults.of_each_kind) {
    refuse_keys_of_no_kind(scaling, newer);
  }
  const std::string name = scaling.empty() ? "rope_parameters." : "rope_scaling.";
  if (!newer.is_object()) refuse_key("rope_parameters." + layers, newer, "a mapping");
  for (const auto& [key, value] : newer.items()) {
    if (has_key(scaling, key) && scaling[key] != value)
      refuse_key("rope_parameters." + key, value, "the value in rope_scaling, " + scaling[key].dump());
    scaling[key] = value;
  }
  const bool has_rows = defaults.rows != nn::PositionRows::kOne;
  for (const auto& [key, value] : scaling.items()) {
    const bool is_of_rows = has_rows && (key == kSections || key == kInterleavedRows);
    const bool is_alpha = defaults.alpha_changes_theta && key == "alpha";
    if (!value.is_null() && !is_of_rows && !is_alpha &&
        std::find(kRotaryKeys.begin(), kRotaryKeys.end(), key) == kRotaryKeys.end())
      reader.pass_over(name + key);
  }
  return scaling;
}

// A key of the model that can also be a key of its rope_parameters.
void refuse_contradiction(const ConfigReader& reader, const json& scaling, const std::string& key) {
  if (!reader.has(key) || !has_key(scaling, key) || reader.keys()[key] == scaling[key]) return;
  refuse_key(key, reader.keys()[key], "the value of rope_parameters." + key + ", which is " + scaling[key].dump());
}

std::string rotary_type(json& scaling, const RotaryDefaults& defaults) {
  for (const char* key : {"type", "rope_type"}) {
    const json type = scaling.value(key, json());
    if (type == "mrope" && defaults.rows != nn::PositionRows::kOne) scaling[key] = "default";
    if (type == "su" || (type == "yarn" && defaults.yarn_is_longrope)) scaling[key] = "longrope";
  }
  if (has_key(scaling, "type") && has_key(scaling, "rope_type") && scaling["type"] != scaling["rope_type"])
    refuse_key("rope_parameters.rope_type", scaling["rope_type"],
               "the value of its older spelling type, which is " + scaling["type"].dump());
  if (has_key(scaling, "type") && !has_key(scaling, "rope_type")) scaling["rope_type"] = scaling["type"];
  return choice_key(scaling, "rope_type", "default", {"default", "linear", "dynamic", "yarn", "llama3", "longrope"});
}

std::vector<double> factors(const json& scaling, const std::string& key, std::int64_t pairs) {
  const json list = scaling.value(key, json());
  const bool fits = list.is_array() && static_cast<std::int64_t>(list.size()) == pairs &&
                    std::all_of(list.begin(), list.end(),
                                [](const json& factor) { return factor.is_number() && factor.get<double>() > 0; });
  if (!fits) refuse_key("rope_parameters." + key, list, fmt::format("a list of {} numbers above 0", pairs));
  return list.get<std::vector<double>>();
}

// An odd number of rotary features is later rounded up by one, as in transformers. If all features of a head
// are rotated, it is an error.
std::int64_t rotated_features(double fraction, std::int64_t head_size) {
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(head_size) * fraction);
  if (rotated == head_size && rotated % 2 != 0)
    refuse_key("head_dim", head_size, "an even number, because rotary positions rotate pairs of features");
  if (rotated < 2)
    refuse_key("partial_rotary_factor", fraction,
               fmt::format("a fraction for at least 2 of {} rotary features", head_size));
  return rotated;
}

// partial_rotary_factor of config.json or of the scaling, which the classes of some families pass over.
double rotated_fraction(ConfigReader& reader, const json& scaling, const RotaryDefaults& defaults,
                        const std::string& type) {
  constexpr const char* kKey = "partial_rotary_factor";
  const double stated = number_key(reader.keys(), kKey, defaults.fraction.value_or(1), 0, 1.0001),
               fraction = number_key(scaling, kKey, stated, 0, 1.0001);
  if (defaults.fraction || fraction == 1) return fraction;
  const char* mapping = has_key(reader.keys(), kKey)    ? ""
                        : reader.has("rope_parameters") ? "rope_parameters."
                                                        : "rope_scaling.";
  if (type != "default")
    refuse_key(mapping + std::string(kKey), fraction, "1, or no such key",
               "the family's class in transformers rotates all features");
  reader.pass_over(mapping + std::string(kKey));
  return 1;
}

void read_llama3(const json& scaling, nn::RotaryOptions& options) {
  options.low_frequency_factor = number_key(scaling, "low_freq_factor", options.low_frequency_factor, 1e-6, 1e6);
  options.high_frequency_factor = number_key(scaling, "high_freq_factor", options.high_frequency_factor, 1e-6, 1e6);
  if (options.high_frequency_factor <= options.low_frequency_factor)
    refuse_key("rope_parameters.high_freq_factor", options.high_frequency_factor,
               fmt::format("more than low_freq_factor {}", options.low_frequency_factor));
}

void read_yarn(const json& scaling, nn::RotaryOptions& options) {
  options.beta_fast = number_key(scaling, "beta_fast", options.beta_fast, 1e-6, 1e6);
  options.beta_slow = number_key(scaling, "beta_slow", options.beta_slow, 1e-6, 1e6);
  options.truncate = flag_key(scaling, "truncate", options.truncate);
  options.mscale = number_key(scaling, "mscale", 0, 0, 1e6);
  options.mscale_all_dim = number_key(scaling, "mscale_all_dim", 0, 0, 1e6);
}

void read_rows(const json& scaling, const RotaryDefaults& defaults, nn::RotaryOptions& options) {
  options.rows = defaults.rows;
  if (options.rows == nn::PositionRows::kOne) return;
  only_value(scaling, kInterleavedRows, options.rows == nn::PositionRows::kInterleaved);
  options.sections = defaults.sections;
  if (!has_key(scaling, kSections)) return;
  const json& list = scaling[kSections];
  const auto is_size = [](const json& number) {
    return number.is_number_integer() && number.get<std::int64_t>() >= 0 && number.get<std::int64_t>() < (1 << 16);
  };
  const bool are_sizes = list.is_array() && list.size() == 3 && std::all_of(list.begin(), list.end(), is_size);
  if (!are_sizes) refuse_key(std::string("rope_parameters.") + kSections, list, "three numbers of rotary pairs");
  options.sections = list.get<std::vector<std::int64_t>>();
  const std::int64_t pairs = (options.rotated + 1) / 2;
  if (options.rows == nn::PositionRows::kInSections &&
      options.sections[0] + options.sections[1] + options.sections[2] != pairs)
    refuse_key(std::string("rope_parameters.") + kSections, list, fmt::format("numbers with the sum {}", pairs));
}

// The values in one spelling, without those that the type does not read.
json deciding_rotary(const nn::RotaryOptions& options) {
  json values = {{"rope_theta", options.theta}, {"rope_type", options.type}};
  if (!options.sections.empty()) values[kSections] = options.sections;
  if (options.rotated > 0) values["rotated"] = options.rotated;
  if (options.type == "default") return values;
  values["factor"] = options.factor;
  if (options.type == "linear") return values;
  values["original_max_position_embeddings"] = options.original_positions;
  if (options.type == "llama3") {
    values["low_freq_factor"] = options.low_frequency_factor;
    values["high_freq_factor"] = options.high_frequency_factor;
  } else if (options.type == "yarn") {
    values["yarn"] = {options.beta_fast, options.beta_slow, options.truncate, options.mscale, options.mscale_all_dim};
  } else if (options.type == "longrope") {
    values["longrope"] = {options.short_factors, options.long_factors};
  }
  if (options.attention_factor) values["attention_factor"] = *options.attention_factor;
  return values;
}

}  // namespace

nn::RotaryOptions rotary_options(ConfigReader& reader, std::int64_t head_size, std::int64_t positions,
                                 const RotaryDefaults& defaults, const std::string& layers) {
  json scaling = scaling_keys(reader, layers, defaults);
  nn::RotaryOptions options;
  options.type = rotary_type(scaling, defaults);
  for (const char* key : {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings"})
    reader.ignore(key);
  if (layers == "full_attention")
    for (const char* key : {"rope_theta", "partial_rotary_factor"}) refuse_contradiction(reader, scaling, key);
  double theta = defaults.theta;
  if (layers == "full_attention") theta = number_key(reader.keys(), "rope_theta", theta, 1, 1e12);
  options.theta = number_key(scaling, "rope_theta", theta, 1, 1e12);
  options.rotated = rotated_features(rotated_fraction(reader, scaling, defaults, options.type), head_size);
  if (defaults.alpha_changes_theta && options.type == "dynamic" && has_key(scaling, "alpha")) {
    const auto rotated = static_cast<double>(options.rotated);
    options.type = "default";
    options.theta *= std::pow(number_key(scaling, "alpha", 1, 1e-6, 1e9), rotated / std::max(rotated - 2, 1.0));
  }
  // A key of the model has priority over one of the scaling. With "dynamic", texts longer than the model's
  // own length change the base.
  const std::int64_t stated =
      size_key(scaling, "original_max_position_embeddings", defaults.original > 0 ? defaults.original : positions);
  options.original_positions =
      options.type == "dynamic" ? positions : size_key(reader.keys(), "original_max_position_embeddings", stated);
  const double ratio = static_cast<double>(positions) / static_cast<double>(options.original_positions);
  const bool follows = options.type == "yarn" || options.type == "longrope";
  options.factor = number_key(scaling, "factor", follows ? std::max(ratio, 1.0) : 1, 1, 1e6);
  if (has_key(scaling, "attention_factor"))
    options.attention_factor = number_key(scaling, "attention_factor", 1, 1e-6, 1e6);
  read_rows(scaling, defaults, options);
  if (options.type == "llama3") read_llama3(scaling, options);
  if (options.type == "yarn") read_yarn(scaling, options);
  if (options.type == "dynamic" && options.rotated <= 2)
    refuse_key("rope_parameters.rope_type", "dynamic", "more than 2 rotary features");
  if (options.type == "longrope") {
    options.short_factors = factors(scaling, "short_factor", (options.rotated + 1) / 2);
    options.long_factors = factors(scaling, "long_factor", (options.rotated + 1) / 2);
  }
  reader.decides(layers == "full_attention" ? "rope_parameters" : "rope_parameters." + layers,
                 deciding_rotary(options));
  return options;
}

bool has_rotary_for_each_kind(const ConfigReader& reader) {
  const json& keys = reader.keys();
  return has_key(keys, "rope_parameters") && keys["rope_parameters"].is_object() &&
         (keys["rope_parameters"].contains("full_attention") || keys["rope_parameters"].contains("sliding_attention"));
}

}  // namespace gantry::models
