#include "gantry/nn/mtp_tokens.h"

#include "gantry/core/error.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr std::int64_t kIgnored = -100;

// Returns the entries `places` ahead, [samples, tokens]; `after` fills the end.
torch::Tensor ahead(const torch::Tensor& entry, std::int64_t places, std::int64_t after) {
  torch::Tensor moved = torch::full_like(entry, after);
  const std::int64_t kept = entry.size(1) - places;
  if (kept > 0) moved.narrow(1, 0, kept).copy_(entry.narrow(1, places, kept));
  return moved;
}

// True for tokens whose label `depth` places ahead belongs to another document. The token that this label names is one
// place further, unless the sequence ends before.
torch::Tensor leaves_document(const torch::Tensor& documents, int depth) {
  const torch::Tensor numbers = documents.to(torch::kInt64);
  torch::Tensor leaves = ahead(numbers, depth, -1) != numbers;
  const std::int64_t kept = numbers.size(1) - depth - 1;
  if (kept > 0) leaves.narrow(1, 0, kept).logical_or_(numbers.narrow(1, depth + 1, kept) != numbers.narrow(1, 0, kept));
  return leaves;
}

torch::Tensor labels_ahead(const torch::Tensor& labels, const TensorDict& batch, int depth) {
  torch::Tensor moved = ahead(labels, depth, kIgnored);
  if (labels.is_meta()) return moved;
  if (const torch::Tensor documents = batch.get("document_ids"); documents.defined() && !documents.is_meta())
    moved.masked_fill_(leaves_document(documents, depth), kIgnored);
  if (const torch::Tensor mask = batch.get("attention_mask"); mask.defined() && !mask.is_meta()) {
    const torch::Tensor keep = (mask != 0).to(torch::kInt64);
    moved.masked_fill_((keep * ahead(keep, depth, 0)) == 0, kIgnored);
  }
  return moved;
}

}  // namespace

TensorDict with_mtp_tokens(TensorDict batch, const torch::Tensor& labels, int depths) {
  const torch::Tensor ids = batch.get("input_ids");
  if (!ids.defined() || ids.dim() != 2)
    throw InputError({"input_ids", "multi-token prediction has " + describe(ids), "input_ids [samples, tokens]",
                      "pass full sequences of tokens"});
  if (labels.defined() && labels.sizes() != ids.sizes())
    throw InputError({"labels", "the labels are " + describe(labels) + ", and input_ids " + describe(ids),
                      "one label for each token", "pass labels of the shape of input_ids"});
  std::vector<torch::Tensor> tokens, targets;
  const torch::Tensor wide = labels.defined() ? labels.to(torch::kInt64) : labels;
  for (int depth = 1; depth <= depths; ++depth) {
    tokens.push_back(ahead(ids, depth, 0));
    if (wide.defined()) targets.push_back(labels_ahead(wide, batch, depth));
  }
  batch.set(kMtpIds, torch::stack(tokens, 2));
  if (!targets.empty()) batch.set(kMtpLabels, torch::stack(targets, 2));
  return batch;
}

std::vector<double> count_mtp_labels(const TensorDict& batch, int depths) {
  const torch::Tensor labels = batch.at(kMtpLabels);
  const torch::Tensor known = on_host(labels);
  const torch::Tensor counted = (known.defined() ? known : labels) != kIgnored;
  std::vector<double> counts;
  for (int depth = 0; depth < depths; ++depth) counts.push_back(number_of(counted.select(2, depth).sum()));
  return counts;
}

}  // namespace gantry::nn
