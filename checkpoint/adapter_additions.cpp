#include "gantry/checkpoint/adapter_additions.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/shard_style.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/peft_names.h"

namespace gantry {
namespace {

constexpr const char* kInner = ".base_layer";

bool is_expert_stack(const std::string& name) {
  return std::ranges::any_of(kExpertStacks,
                             [&](const char* stack) { return name.ends_with(std::string(".") + stack); });
}

}  // namespace

Additions::Additions(const StoredAdapter& adapter, const std::string& family, const nlohmann::json& config,
                     const std::vector<models::TensorName>& names)
    : adapter_(adapter), family_(family), config_(config) {
  for (const auto& name : names)
    if (name.name.ends_with(".weight"))
      add_matrix(name, models::hugging_face_path(adapted_layer(name.name), names).path);
    else if (is_expert_stack(name.name))
      add_stack(name, models::hugging_face_path(adapted_layer(name.name), names).path);
}

const Addition* Additions::find(const std::string& stored) const {
  const auto found = all_.find(stored);
  return found == all_.end() ? nullptr : &found->second;
}

void Additions::add_full(const models::TensorName& name, const Addition& addition) {
  if (name.parts.empty()) all_[name.hugging_face] = addition;
  for (const auto& other : name.other_names) all_.try_emplace(other, addition);
}

void Additions::add_parts(const std::vector<models::TensorPart>& parts, Addition addition) {
  for (const auto& part : parts) {
    addition.shards = part.shards;
    all_[part.hugging_face] = addition;
  }
}

void Additions::add_matrix(const models::TensorName& name, const std::string& path) {
  Addition addition{.factors = path, .path = path, .transposed = name.transposed};
  if (!adapter_.tensors.contains(path + kStoredA)) {
    if (adapter_.tensors.contains(path + kStoredTokens))
      return add_full(name, {.factors = path, .path = path, .is_tokens = true});
    if (!adapter_.tensors.contains(path + kStoredTableA)) return;
    addition = {.factors = path, .path = path, .a = kStoredTableA, .b = kStoredTableB, .transposed = true};
  }
  add_full(name, addition);
  add_parts(name.other_parts, addition);
}

// If one module has two stacks, the first one's adapter is within the second one's.
void Additions::add_stack(const models::TensorName& name, const std::string& module) {
  const std::string stack = name.name.substr(name.name.rfind('.')), path = module + stack;
  const auto& entries = adapter_.lora.target_modules;
  if (std::none_of(entries.begin(), entries.end(), [&](const auto& one) { return models::names_module(one, path); }))
    return;
  const bool both = adapter_.tensors.contains(module + kInner + kStoredA);
  const models::DecoderSpec spec = models::decoder_spec(family_, config_);
  const auto layer = std::find_if(spec.layers.begin(), spec.layers.end(),
                                  [](const models::LayerSpec& one) { return one.experts.has_value(); });
  const Addition addition{.factors = module + (both && stack != std::string(".") + kDownStack ? kInner : ""),
                          .path = path,
                          .transposed = models::expert_shape(*layer->experts, spec.hidden).input_is_first(),
                          .experts = layer->experts->count};
  add_full(name, addition);
  add_parts(name.parts, addition);
}

}  // namespace gantry
