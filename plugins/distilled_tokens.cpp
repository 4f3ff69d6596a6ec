#include "gantry/plugins/distilled_tokens.h"

#include "gantry/plugins/token_losses.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

TensorDict batch_as_given(const TensorDict& batch) { return batch; }

}  // namespace

const SplitDim* split_logits(const SplitOutputs& split) {
  const auto dim = split.find("logits");
  return dim != split.end() && dim->second.placement.sharded() ? &dim->second : nullptr;
}

Criterion distilled_tokens(double alpha, const TokenNumbers& divergences, const TokenNumbers& added) {
  const auto compare = [divergences, added, alpha](const TensorDict& outputs, const TensorDict& batch,
                                                   const SplitOutputs& split) {
    const torch::Tensor &logits = outputs.at("logits"), &labels = batch.at("labels");
    const torch::Tensor counted = labels != -100;
    torch::Tensor losses = (1 - alpha) * divergences(outputs, batch, split).masked_fill(~counted, 0);
    if (alpha > 0) losses = losses + alpha * token_losses(logits, labels, split);
    if (added) losses = losses + added(outputs, batch, split).masked_fill(~counted, 0);
    const torch::Tensor known = on_host(labels);
    return Loss(losses.sum(), (known.defined() ? known != -100 : counted).sum());
  };
  Criterion criterion = Criterion::over_tokens(compare, batch_as_given, compare);
  criterion.set_count([](const TensorDict& batch) {
    const torch::Tensor& labels = batch.at("labels");
    const torch::Tensor known = on_host(labels);
    return static_cast<std::int64_t>(number_of(((known.defined() ? known : labels) != -100).sum()));
  });
  return criterion;
}

}  // namespace gantry
