// The names of a model's tensors in files, whose prefixes and spellings differ between versions and programs.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gantry/models/model_family.h"

namespace gantry {

class StoredNames {
 public:
  // `family` must outlive the object.
  StoredNames(const models::ModelFamily& family, const nlohmann::json& keys);

  // Returns the family's name for a name in a file, also for the scales of an encoded weight. Returns "" for
  // a buffer that no model reads. An unknown name is returned in the family's spelling.
  std::string find(const std::string& stored) const;
  // True for the names in all forms that the model's tensors can have in files.
  bool is_known(const std::string& name) const { return known_.contains(name); }

 private:
  std::string find_plain(const std::string& stored) const;
  std::string core_of(std::string name) const;
  void add(const std::string& name);

  const models::ModelFamily& family_;
  const nlohmann::json keys_;
  std::set<std::string> known_;
  std::map<std::string, std::string> by_core_;  // by the name without prefixes; "": several names have it
};

// The tensor in the form that the files have: complete under one of its names, or in parts. If the files do
// not have it, the result is the form in which it is written. `has` returns whether the files have a name.
models::TensorName form_in_files(const models::TensorName& name, const std::function<bool(const std::string&)>& has);

// The names that the files must contain: one name, or those of all parts.
std::vector<std::string> names_in_files(const models::TensorName& name);

// Example: "model.layers.*.self_attn.rotary_emb.inv_freq (32), score.weight". Numbers are replaced by "*",
// and equal names are counted.
std::string summary_of_names(const std::vector<std::string>& names);

}  // namespace gantry
