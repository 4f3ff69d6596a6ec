#include "gantry/plugins/criterion.h"

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Cross entropy against the labels that `aligned` takes from the microbatch.
Criterion labelled_cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits,
                                 std::function<torch::Tensor(const TensorDict& batch)> aligned) {
  return Criterion::on_split_outputs([=](const TensorDict& outputs, const TensorDict& batch,
                                         const SplitOutputs& split) {
    const auto dim = split.find(logits);
    if (dim == split.end()) return nn::cross_entropy(outputs.at(logits), aligned(batch), options);
    return nn::cross_entropy(outputs.at(logits), aligned(batch), *dim->second.group, dim->second.placement, options);
  });
}

}  // namespace

Criterion cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits, const std::string& labels) {
  return labelled_cross_entropy(options, logits, [labels](const TensorDict& batch) { return batch.at(labels); });
}

Criterion causal_cross_entropy(const nn::CrossEntropyOptions& options, const std::string& logits,
                               const std::string& labels) {
  const std::int64_t ignored = options.ignore_index;
  return labelled_cross_entropy(options, logits, [labels, ignored](const TensorDict& batch) {
    const torch::Tensor given = batch.at(labels);
    if (given.dim() != 2)
      throw InputError({"causal loss", "'" + labels + "' is " + describe(given), "labels [B, S], one a token", ""});
    const std::int64_t tokens = given.size(1);
    torch::Tensor shifted = torch::full_like(given, ignored);
    if (tokens > 1) shifted.narrow(1, 0, tokens - 1).copy_(given.narrow(1, 1, tokens - 1));
    return shifted;
  });
}

Criterion mean_over_labels(Criterion::Function mean, const std::string& labels, std::int64_t ignore_index) {
  return Criterion([=](const TensorDict& outputs, const TensorDict& batch) {
    const torch::Tensor count = (batch.at(labels) != ignore_index).sum();
    const Loss loss = mean(outputs, batch);
    if (loss.count.defined())
      throw UsageError({"mean_over_labels", "the callable returned a sum and a count", "a scalar mean",
                        "pass it to boost as it is"});
    if (count.item<std::int64_t>() == 0) return Loss(torch::zeros({}, loss.sum.options().requires_grad(false)), count);
    return Loss(loss.sum * count, count);
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
