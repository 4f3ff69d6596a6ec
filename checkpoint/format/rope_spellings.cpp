#include "gantry/checkpoint/format/rope_spellings.h"

#include <array>
#include <nlohmann/json.hpp>

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kText = "text_config";
constexpr const char* kSections = "mrope_section";
constexpr const char* kLocalBase = "rope_local_base_freq";

bool has(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && !object[key].is_null();
}

bool is_gemma3(const json& config) { return config.value("model_type", json()) == "gemma3_text"; }

// Keys of rope_parameters with their older names outside a mapping.
struct OlderName {
  const char *newer, *older;
};

std::array<OlderName, 2> older_names(const json& config) {
  if (config.value("model_type", json()) == "gpt_neox")
    return {{{"rope_theta", "rotary_emb_base"}, {"partial_rotary_factor", "rotary_pct"}}};
  return {{{"rope_theta", "rope_theta"}, {"partial_rotary_factor", "partial_rotary_factor"}}};
}

// The keys of rope_parameters for a configuration with the older spelling.
json newer_of(const json& config) {
  json rope = has(config, "rope_scaling") ? config["rope_scaling"] : json::object();
  if (!rope.is_object()) return rope;
  if (has(rope, "type") && rope["type"] == "mrope") rope["type"] = "default";  // the name in newer classes
  if (!has(rope, "rope_type")) rope["rope_type"] = has(rope, "type") ? rope["type"] : json("default");
  for (const auto& [newer, older] : older_names(config))
    if (has(config, older) && !has(rope, newer)) rope[newer] = config[older];
  return rope;
}

void add_newer(json& config) {
  json rope = newer_of(config);
  if (!rope.is_object()) return;
  if (is_gemma3(config)) {
    json sliding = {{"rope_type", "default"}};
    if (has(config, kLocalBase)) sliding["rope_theta"] = config[kLocalBase];
    rope = {{kFull, rope}, {kSliding, sliding}};
  }
  config["rope_parameters"] = std::move(rope);
}

// Sets rope_theta, rope_scaling and partial_rotary_factor to the values of a mapping of rope_parameters.
void add_older(json& config, json rope) {
  for (const auto& [newer, older] : older_names(config)) {
    if (has(rope, newer)) config[older] = rope[newer];
    rope.erase(newer);
  }
  if (rope.value("rope_type", json("default")) == "default" && !has(rope, kSections)) return;
  if (config.value("model_type", json()) == "phi3") {  // its older classes require exactly three keys
    if (has(rope, "original_max_position_embeddings"))
      config["original_max_position_embeddings"] = rope["original_max_position_embeddings"];
    rope = {{"type", rope["rope_type"]},
            {"short_factor", rope.value("short_factor", json())},
            {"long_factor", rope.value("long_factor", json())}};
  }
  config["rope_scaling"] = std::move(rope);
}

// True if the older spelling, which scales full layers only, has the same values for sliding layers.
bool is_default_of_one_base(const json& rope) {
  if (!has(rope, kSliding)) return true;
  const json& sliding = rope[kSliding];
  return sliding.value("rope_type", json("default")) == "default" &&
         sliding.value("rope_theta", json()) == rope[kFull].value("rope_theta", json());
}

}  // namespace

void complete_rope_spellings(json& config) {
  if (config.contains(kText) && config[kText].is_object()) complete_rope_spellings(config[kText]);
  const bool older = has(config, older_names(config)[0].older) || has(config, "rope_scaling");
  if (!has(config, "rope_parameters")) {
    if (older) add_newer(config);
    return;
  }
  const json rope = config["rope_parameters"];
  if (older || !rope.is_object()) return;
  if (!has(rope, kFull)) return add_older(config, rope);
  if (!is_gemma3(config) && !is_default_of_one_base(rope)) return;
  add_older(config, rope[kFull]);
  if (is_gemma3(config) && has(rope, kSliding) && has(rope[kSliding], "rope_theta"))
    config[kLocalBase] = rope[kSliding]["rope_theta"];
}

}  // namespace gantry
