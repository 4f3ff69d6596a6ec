// The tensors in files of BART, Pegasus and Whisper, whose names in files have a prefix.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gantry/models/model_family.h"

namespace gantry::models {

class StackNames {
 public:
  explicit StackNames(bool key_bias) : key_bias_(key_bias) {}

  void add(const std::string& name) { names_.push_back({name, "model." + name}); }
  void add_both(const std::string& path) {  // weight and bias
    add(path + ".weight");
    add(path + ".bias");
  }
  void add_layers(const std::string& stack, std::int64_t layers, bool decodes) {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string at = stack + ".layers." + std::to_string(layer) + ".";
      add_attention(at + "self_attn");
      if (decodes) add_attention(at + "encoder_attn");
      for (const char* part : {"fc1", "fc2", "final_layer_norm"}) add_both(at + part);
    }
  }
  // The last name may be missing in files: the tensor then keeps its initial values.
  void allow_new() { names_.back().new_allowed = true; }
  std::vector<TensorName> take() { return std::move(names_); }

 private:
  void add_attention(const std::string& path) {
    add(path + ".k_proj.weight");
    if (key_bias_) add(path + ".k_proj.bias");
    for (const char* part : {".v_proj", ".q_proj", ".out_proj", "_layer_norm"}) add_both(path + part);
  }

  const bool key_bias_;
  std::vector<TensorName> names_;
};

}  // namespace gantry::models
