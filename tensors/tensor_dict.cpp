#include "gantry/tensors/tensor_dict.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"
#include "gantry/tensors/entry_reads.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

auto find_entry(auto& entries, const std::string& name) {
  return std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
}

}  // namespace

TensorDict::TensorDict(std::initializer_list<Entry> entries) {
  for (const auto& [name, tensor] : entries) set(name, tensor);
}

void TensorDict::set(const std::string& name, torch::Tensor tensor) {
  if (const auto found = find_entry(entries_, name); found != entries_.end()) {
    found->second = std::move(tensor);
  } else {
    entries_.emplace_back(name, std::move(tensor));
  }
}

bool TensorDict::contains(const std::string& name) const { return find_entry(entries_, name) != entries_.end(); }

const torch::Tensor& TensorDict::at(const std::string& name) const {
  EntryReads::note(name);
  if (const auto found = find_entry(entries_, name); found != entries_.end()) return found->second;
  throw InputError(
      {"tensors", "there is no entry '" + name + "' in " + describe(*this), "", "add the entry, or check its name"});
}

torch::Tensor TensorDict::get(const std::string& name) const {
  EntryReads::note(name);
  const auto found = find_entry(entries_, name);
  return found == entries_.end() ? torch::Tensor() : found->second;
}

torch::Tensor TensorDict::take(const std::string& name) {
  torch::Tensor tensor = at(name);
  entries_.erase(find_entry(entries_, name));
  return tensor;
}

std::string dtype_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat64:
      return "float64";
    case torch::kFloat32:
      return "float32";
    case torch::kBFloat16:
      return "bfloat16";
    case torch::kFloat16:
      return "float16";
    case torch::kInt64:
      return "int64";
    case torch::kInt32:
      return "int32";
    case torch::kInt16:
      return "int16";
    case torch::kInt8:
      return "int8";
    case torch::kUInt8:
      return "uint8";
    case torch::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

torch::ScalarType dtype_of(const std::string& name) {
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16})
    if (dtype_name(type) == name) return type;
  throw ConfigError({"precision", "the value is '" + name + "'", "float64, float32, bfloat16 or float16", ""});
}

std::string describe(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return fmt::format("{} [{}]", dtype_name(tensor.scalar_type()),
                     fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
}

std::string describe(const TensorDict& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) text += (text.empty() ? "" : ", ") + name + ": " + describe(tensor);
  return "{" + text + "}";
}

}  // namespace gantry
