// A model's tensors in a Hugging Face directory, by the family's names, in all supported forms of files.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/checkpoint/encoded_tensor.h"
#include "gantry/checkpoint/stored_names.h"

namespace gantry {

class StoredModel {
 public:
  // Opens all files. Throws InputError for missing or damaged files, for a tensor that the index lists and its file
  // lacks, and for two tensors with the same meaning.
  StoredModel(const std::string& directory, const models::ModelFamily& family, const nlohmann::json& keys);

  const StoredNames& known_names() const { return known_; }
  // Names of the decoded tensors, by the family.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return places_.contains(name) || encoded_.contains(name); }
  // Null for a tensor that is not encoded.
  const EncodedTensor* encoded(const std::string& name) const;
  // Returns the position of a tensor that is not encoded.
  const TensorPlace& place(const std::string& name) const { return places_.at(name); }
  // The name in the files, and the properties of the decoded tensor. The type of an encoded tensor is
  // EncodedTensor::type().
  std::string stored_name(const std::string& name) const;
  Shape shape(const std::string& name) const;
  torch::ScalarType type(const std::string& name) const;
  torch::Tensor read(const std::string& name) const;
  // Tensors that no model of the family reads: buffers, and scales of inputs.
  const std::vector<TensorPlace>& buffers() const { return buffers_; }

 private:
  void add(const TensorPlace& place, const std::string& path);
  void find_encoded(const nlohmann::json& keys);
  void find_four_bit(std::vector<std::string>& used);
  void find_eight_bit(std::vector<std::string>& used);

  StoredNames known_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, TensorPlace> places_;
  std::map<std::string, std::unique_ptr<EncodedTensor>> encoded_;
  std::vector<TensorPlace> buffers_;
};

}  // namespace gantry
