#include "gantry/models/peft_names.h"

#include <algorithm>
#include <set>

#include "gantry/core/config/adapter_names.h"
#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

const TensorName* find_name(const std::vector<TensorName>& names, const std::string& name) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const TensorName& one) { return one.name == name; });
  return found == names.end() ? nullptr : &*found;
}

// The prefix in files before the registered names: "model.".
std::string prefix_of_files(const std::vector<TensorName>& names) {
  for (const auto& one : names)
    if (one.hugging_face.ends_with("." + one.name))
      return one.hugging_face.substr(0, one.hugging_face.size() - one.name.size());
  return "";
}

// Whether this module contains a stack of experts that files store separately, or is next to one.
bool stands_by_experts(const std::string& module, const std::vector<TensorName>& names) {
  const std::string around = module.substr(0, module.rfind('.') + 1);
  return !around.empty() && std::any_of(names.begin(), names.end(), [&](const TensorName& one) {
    return !one.parts.empty() && one.name.starts_with(around) &&
           std::any_of(std::begin(kExpertStacks), std::end(kExpertStacks),
                       [&](const char* stack) { return one.name.ends_with(std::string(".") + stack); });
  });
}

// The name of a factor in PEFT's files, after their prefix. If a module has two stacks, the second one wraps
// the first.
std::string stored_factor(const std::string& name, const std::vector<std::string>& parameters,
                          const std::vector<TensorName>& names) {
  const std::string layer = adapted_layer(name);
  if (!is_stack_adapter(name)) {
    const std::string factor = name.substr(name.rfind('.'));
    const bool is_table = factor == std::string(".") + kTableAdapterA || factor == std::string(".") + kTableAdapterB;
    const bool is_magnitude = factor == std::string(".") + kAdapterMagnitude;
    const std::string path = hugging_face_path(layer, names).path;
    if (factor == std::string(".") + kTrainedTokens) return path + kPeftTokens + factor;
    return path + factor + (is_table || is_magnitude ? "" : ".weight");
  }
  const std::string module = layer.substr(0, layer.rfind('.'));
  const std::string output = module + "." + kDownStack, other = output + kStackAdapterA;
  const bool is_inner = layer != output && std::find(parameters.begin(), parameters.end(), other) != parameters.end();
  return hugging_face_path(module, names).path + (is_inner ? ".base_layer" : "") +
         (name.ends_with(kStackAdapterA) ? ".lora_A.weight" : ".lora_B.weight");
}

}  // namespace

bool names_around(const std::string& entry, const std::string& path) {
  for (std::size_t end = path.size(); end != std::string::npos && end > 0; end = path.rfind('.', end - 1))
    if (names_module(entry, path.substr(0, end))) return true;
  return false;
}

ModulePath hugging_face_path(const std::string& module, const std::vector<TensorName>& names) {
  const TensorName* weight = find_name(names, module + ".weight");
  if (weight && !weight->hugging_face.empty() && !stands_by_experts(module, names))
    return {weight->hugging_face.substr(0, weight->hugging_face.rfind('.')), weight->transposed};
  const bool is_known = std::any_of(names.begin(), names.end(),
                                    [&](const TensorName& one) { return one.name.starts_with(module + "."); });
  return {(is_known ? prefix_of_files(names) : "") + module};
}

std::vector<TensorName> trained_names(const std::vector<std::string>& parameters, const LoraConfig& lora,
                                      const std::vector<TensorName>& names) {
  std::vector<TensorName> trained;
  for (const auto& name : parameters) {
    if (is_adapter(name)) {
      trained.push_back({name, kPeftPrefix + stored_factor(name, parameters, names),
                         name.ends_with(std::string(".") + kTableAdapterA)});
      continue;
    }
    const TensorName* known = find_name(names, name);
    const std::string stored = known ? known->hugging_face : name;
    const std::string module = name.substr(0, name.rfind('.')), path = stored.substr(0, stored.rfind('.'));
    const bool is_saved = std::ranges::any_of(lora.modules_to_save, [&](const auto& entry) {
      return names_around(entry, module) || names_around(entry, path);
    });
    if (!is_saved) continue;
    if (known && known->hugging_face.empty())
      throw ConfigError({"lora.modules_to_save", name + " is stored in parts, which an adapter file does not support",
                         "modules without stacked experts", ""});
    trained.push_back({name, kPeftPrefix + stored, known && known->transposed});
  }
  return trained;
}

std::vector<std::string> entries_of_parameters(const std::vector<std::string>& parameters, const LoraConfig& lora,
                                               const std::vector<TensorName>& names) {
  std::set<std::string> paths;
  for (const auto& name : parameters) {
    if (!is_adapter(name)) continue;
    const std::string layer = adapted_layer(name);
    if (is_stack_adapter(name)) {
      const std::size_t dot = layer.rfind('.');
      paths.insert({layer, hugging_face_path(layer.substr(0, dot), names).path + layer.substr(dot)});
    } else {
      paths.insert({layer + ".weight", hugging_face_path(layer, names).path + ".weight"});
    }
  }
  std::vector<std::string> entries;
  for (const auto& entry : lora.target_modules)
    if (std::any_of(paths.begin(), paths.end(), [&](const auto& path) { return names_module(entry, path); }))
      entries.push_back(entry);
  return entries;
}

torch::Tensor as_stored_factor(const std::string& name, const torch::Tensor& tensor) {
  if (!is_stack_adapter(name)) return tensor;
  if (name.ends_with(kStackAdapterA)) return tensor.reshape({-1, tensor.size(2)});
  return tensor.permute({1, 2, 0}).reshape({tensor.size(1), -1});
}

torch::Tensor from_stored_factor(const std::string& name, const torch::Tensor& stored, std::int64_t experts) {
  if (!is_stack_adapter(name)) return stored;
  if (name.ends_with(kStackAdapterA)) return stored.reshape({experts, -1, stored.size(1)});
  return stored.reshape({stored.size(0), -1, experts}).permute({2, 0, 1}).contiguous();
}

std::vector<std::int64_t> stored_factor_shape(const std::string& name, const std::vector<std::int64_t>& shape) {
  if (!is_stack_adapter(name)) return shape;
  if (name.ends_with(kStackAdapterA)) return {shape[0] * shape[1], shape[2]};
  return {shape[1], shape[2] * shape[0]};
}

}  // namespace gantry::models
