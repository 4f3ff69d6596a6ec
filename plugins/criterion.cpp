#include "gantry/plugins/criterion.h"

namespace gantry {

Criterion cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits, const std::string& labels) {
  return Criterion::on_split_outputs(
      [=](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
        const SplitDim& dim = split.at(logits);
        return nn::cross_entropy(outputs.at(logits), batch.at(labels), *dim.group, dim.placement, options);
      });
}

}  // namespace gantry
