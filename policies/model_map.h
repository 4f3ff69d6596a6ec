// The modules and parameters of a model by path, and the paths that share one tensor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace gantry {

// A parameter or buffer with all of its paths; the first path is its global name.
struct NamedTensor {
  torch::Tensor tensor;
  std::vector<std::string> names;
};

struct ModelMap {
  explicit ModelMap(torch::nn::Module& model);

  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> modules;  // in registration order
  std::vector<NamedTensor> parameters, buffers;                                     // each tensor once

  std::vector<std::string> module_names() const;
};

// True if `path` is `ancestor` or is below it.
bool is_within(const std::string& path, const std::string& ancestor);

}  // namespace gantry
