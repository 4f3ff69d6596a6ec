#include "gantry/plugins/completion_sums.h"

#include <vector>

#include "gantry/plugins/preference_loss.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
CompletionSums completion_sums(const TokenLossesOf& losses_of, const TensorDict& batch) {
  const torch::Tensor &completions = batch.at("labels"), prompts = batch.get("prompt_labels"),
                      documents = batch.get("document_ids");
  const torch::Tensor labels =
      prompts.defined() ? torch::where(completions == -100, prompts, completions) : completions;
  const torch::Tensor losses = losses_of(labels);
  const torch::Tensor trained = completions != -100;
  std::vector<torch::Tensor> columns = {trained};
  if (documents.defined()) columns = {trained & (documents == kChosen), trained & (documents == kRejected)};
  if (prompts.defined()) columns.push_back((labels != -100) & (documents == kChosen));
  std::vector<torch::Tensor> scores, tokens;
  for (const torch::Tensor& column : columns) {
    scores.push_back(-(losses * column).sum(1));
    tokens.push_back(column.sum(1).to(losses.scalar_type()));
  }
  return {torch::stack(scores, 1), torch::stack(tokens, 1)};
}

CompletionSums over_parts(const CompletionSums& part, ProcessGroup& parts) {
  torch::Tensor all = torch::stack({part.scores.detach(), part.tokens});
  parts.all_reduce(all).wait();
  return {part.scores + (all[0] - part.scores.detach()), all[1]};
}

}  // namespace gantry
