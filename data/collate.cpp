#include "gantry/data/collate.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/collate_samples.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

torch::Tensor padded(const torch::Tensor& tensor, std::int64_t length, double value) {
  std::vector<std::int64_t> missing = tensor.sizes().vec();
  missing[0] = length - missing[0];
  return missing[0] == 0 ? tensor : torch::cat({tensor, torch::full(missing, value, tensor.options())});
}

void require_one_shape(const std::string& name, const std::vector<torch::Tensor>& tensors) {
  for (const torch::Tensor& tensor : tensors)
    if (tensor.sizes() != tensors[0].sizes())
      throw UsageError({"batch entry '" + name + "'",
                        fmt::format("the samples are {} and {}", describe(tensors[0]), describe(tensor)), "one shape",
                        "pad the samples: name the entry in pad_to_longest, or write a collate function"});
}

}  // namespace

TensorDict collate_samples(const Collate& collate, const std::vector<TensorDict>& samples) {
  TensorDict made = collate(samples);
  for (const auto& [name, tensor] : made)
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != static_cast<std::int64_t>(samples.size()))
      throw UsageError({"DataLoaderOptions::collate", fmt::format("the entry '{}' is {}", name, describe(tensor)),
                        fmt::format("[{} samples, ...]", samples.size()), "stack the samples along dimension 0"});
  return made;
}

Collate pad_to_longest(std::map<std::string, double> padding) {
  return [padding = std::move(padding)](const std::vector<TensorDict>& samples) {
    TensorDict batch;
    for (const auto& [name, first] : samples[0]) {
      std::vector<torch::Tensor> tensors;
      for (const TensorDict& sample : samples) tensors.push_back(sample.at(name));
      const auto value = padding.find(name);
      if (value != padding.end() && first.dim() > 0) {
        const auto length_of = [](const torch::Tensor& tensor) { return tensor.size(0); };
        const std::int64_t longest = length_of(*std::ranges::max_element(tensors, {}, length_of));
        for (torch::Tensor& tensor : tensors) tensor = padded(tensor, longest, value->second);
      }
      require_one_shape(name, tensors);
      batch.set(name, torch::stack(tensors));
    }
    return batch;
  };
}

}  // namespace gantry
