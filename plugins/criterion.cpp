#include "gantry/plugins/criterion.h"

namespace gantry {

Criterion cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits, const std::string& labels) {
  return Criterion::on_split_outputs([=](const TensorDict& outputs, const TensorDict& batch,
                                         const SplitOutputs& split) {
    const auto dim = split.find(logits);
    if (dim == split.end()) return nn::cross_entropy(outputs.at(logits), batch.at(labels), options);
    return nn::cross_entropy(outputs.at(logits), batch.at(labels), *dim->second.group, dim->second.placement, options);
  });
}

Criterion answer_span_loss(const std::string& logits) {
  return Criterion([=](const TensorDict& outputs, const TensorDict& batch) {
    const torch::Tensor scores = outputs.at(logits);  // [B, S, 2]
    const std::int64_t tokens = scores.size(1);
    torch::Tensor sum, count;
    for (const auto& [name, column] : {std::pair("start_positions", 0), std::pair("end_positions", 1)}) {
      torch::Tensor place = batch.at(name);
      place = place.masked_fill((place < 0) | (place >= tokens), -100);
      const Loss part = nn::cross_entropy(scores.select(2, column), place);
      sum = sum.defined() ? sum + part.sum : part.sum;
      count = count.defined() ? count + part.count : part.count;
    }
    return Loss(sum, count);
  });
}

}  // namespace gantry
