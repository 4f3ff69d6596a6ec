// Named tensors in the order in which they were put in: what travels between stages, and a model's inputs and outputs.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry {

class TensorDict {
 public:
  using Entry = std::pair<std::string, torch::Tensor>;

  TensorDict() = default;
  TensorDict(std::initializer_list<Entry> entries);

  // Replaces the entry of that name, or appends one. The tensor may be undefined.
  void set(const std::string& name, torch::Tensor tensor);
  bool contains(const std::string& name) const;
  // InputError naming the missing entry and those that are there.
  const torch::Tensor& at(const std::string& name) const;
  // The entry, or an undefined tensor.
  torch::Tensor get(const std::string& name) const;
  torch::Tensor take(const std::string& name);  // removes it; as at() if missing

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

// "{hidden: float32 [4, 128, 256], mask: none}"
std::string describe(const TensorDict& tensors);
std::string describe(const torch::Tensor& tensor);    // "float32 [4, 128, 256]"
std::string dtype_name(torch::ScalarType type);       // "float32"
torch::ScalarType dtype_of(const std::string& name);  // float64 | float32 | bfloat16 | float16; ConfigError otherwise

}  // namespace gantry
