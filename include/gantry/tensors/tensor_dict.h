// Named tensors in insertion order: messages between stages, and the inputs and outputs of models.
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

  // Replaces the entry with this name, or appends one. The tensor may be undefined.
  void set(const std::string& name, torch::Tensor tensor);
  bool contains(const std::string& name) const;
  // Throws InputError, with the missing name and the existing ones, if there is no such entry. The reference is valid
  // until the next set() or take().
  const torch::Tensor& at(const std::string& name) const;
  // Returns the entry, or an undefined tensor.
  torch::Tensor get(const std::string& name) const;
  torch::Tensor take(const std::string& name);  // removes and returns it; throws like at()

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
std::string describe(const torch::Tensor& tensor);  // "float32 [4, 128, 256]"
std::string dtype_name(torch::ScalarType type);     // "float32"
// Float64 | float32 | bfloat16 | float16; otherwise throws ConfigError.
torch::ScalarType dtype_of(const std::string& name);

}  // namespace gantry
