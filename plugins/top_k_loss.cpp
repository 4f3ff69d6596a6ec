#include "gantry/plugins/top_k_loss.h"

#include "gantry/core/error.h"
#include "gantry/plugins/distilled_tokens.h"
#include "gantry/plugins/divergence.h"
#include "gantry/plugins/top_tokens.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The columns of the teacher's tokens on this rank, and the probabilities of these tokens; 0 for those of other ranks.
struct OwnTokens {
  torch::Tensor columns, probabilities;
};

OwnTokens own_tokens(const torch::Tensor& tokens, const torch::Tensor& probabilities, std::int64_t first,
                     std::int64_t width) {
  const torch::Tensor columns = tokens - first, here = (columns >= 0) & (columns < width);
  return {columns.clamp(0, width - 1), probabilities.masked_fill(~here, 0)};
}

struct TopKDivergence : torch::autograd::Function<TopKDivergence> {
  static Variable forward(AutogradContext* context, const Variable& logits, const torch::Tensor& tokens,
                          const torch::Tensor& logs, const SplitDim* split, double temperature) {
    ProcessGroup* group = split ? split->group : nullptr;
    const std::int64_t first = split ? split->placement.ranges(group->rank()).front().begin : 0;
    const torch::Tensor student = scaled_logits(logits, temperature);
    const torch::Tensor teacher = scaled_logits(logs, temperature).to(student.scalar_type()).softmax(1);
    const OwnTokens own = own_tokens(tokens, teacher, first, logits.size(1));

    torch::Tensor largest = student.amax(1, /*keepdim=*/true);
    if (group) group->all_reduce(largest, ReduceOp::kMax).wait();
    const torch::Tensor weighed = own.probabilities * student.gather(1, own.columns);
    torch::Tensor sums =
        torch::stack({(student - largest).exp().sum(1), weighed.masked_fill(own.probabilities == 0, 0).sum(1)});
    if (group) group->all_reduce(sums).wait();
    const torch::Tensor log_total = sums[0].log() + largest.squeeze(1);

    context->save_for_backward({logits, log_total, own.columns, own.probabilities});
    context->saved_data["temperature"] = temperature;
    return at::xlogy(teacher, teacher).sum(1) - sums[1] + log_total;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const double temperature = context->saved_data["temperature"].toDouble();
    torch::Tensor gradient = (scaled_logits(saved[0], temperature) - saved[1].unsqueeze(1)).exp();
    gradient.scatter_add_(1, saved[2], -saved[3]);
    return {(gradient * (gradients[0] / temperature).unsqueeze(1)).to(saved[0].scalar_type()), {}, {}, {}, {}};
  }
};

void require_tops(const torch::Tensor& tops, const torch::Tensor& logits) {
  if (tops.dim() == 3 && tops.size(0) == logits.size(0) && tops.size(1) == logits.size(1)) return;
  throw UsageError({std::string("batch entry '") + kTeacherTops + "'",
                    "the tensor is " + describe(tops) + ", and the logits are " + describe(logits),
                    "numbers for the samples and tokens of the logits", "pass the entry of the same samples"});
}

}  // namespace

torch::Tensor top_k_divergences(const torch::Tensor& logits, const torch::Tensor& tokens, const torch::Tensor& logs,
                                const SplitDim* split, double temperature) {
  return TopKDivergence::apply(logits, tokens, logs, split, temperature);
}

Criterion top_k_loss(double alpha, double temperature) {
  return distilled_tokens(
      alpha, [temperature](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
        const torch::Tensor &logits = outputs.at("logits"), &tops = batch.at(kTeacherTops);
        require_tops(tops, logits);
        const TopTokens teacher = unpacked(tops.flatten(0, 1));
        const torch::Tensor each =
            top_k_divergences(logits.flatten(0, 1), teacher.tokens, teacher.logs, split_logits(split), temperature);
        return temperature * temperature * each.view({logits.size(0), logits.size(1)});
      });
}

}  // namespace gantry
