// The stages that hold each parameter of a model, according to a policy.
#pragma once

#include <string>
#include <vector>

#include "gantry/policies/model_map.h"
#include "gantry/policies/policy.h"

namespace gantry {

class StageContents {
 public:
  // `ranges`: the layers of each stage. `map` and `policy` must outlive this object. Throws ConfigError for a path or a
  // shared parameter that the model does not have, and for shared parameters that are several tensors.
  StageContents(const ModelMap& map, const Policy& policy, const torch::nn::Module& model,
                const std::vector<LayerRange>& ranges);

  // The stages that hold a module or tensor with one of these names, ascending.
  std::vector<int> stages_of(const std::vector<std::string>& names) const;
  // The same for a parameter. Throws ConfigError if no stage holds it, or if several do and it is not shared.
  std::vector<int> stages_of_parameter(const NamedTensor& parameter) const;

 private:
  void check_paths(const ModelMap& map) const;
  void check_shared(const ModelMap& map) const;
  bool is_shared(const std::vector<std::string>& names) const;

  const Policy& policy_;
  std::vector<std::vector<std::string>> paths_;  // by stage
  SharedParameters shared_;
};

}  // namespace gantry
