#include "gantry/plugins/microbatch_losses.h"

#include <utility>

#include "gantry/core/error.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/plugins/user_checks.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Zero, with a backward through all outputs.
torch::Tensor zero_of(const TensorDict& outputs) {
  torch::Tensor zero;
  for (const auto& [name, tensor] : outputs)
    if (tensor.defined() && tensor.is_floating_point()) {
      const torch::Tensor nothing = tensor.reshape({-1}).narrow(0, 0, 0).sum();
      zero = zero.defined() ? zero + nothing : nothing;
    }
  return zero.defined() ? zero : torch::zeros({});
}

}  // namespace

MicrobatchLosses::MicrobatchLosses(Criterion criterion, const SplitOutputs& split, std::size_t microbatches,
                                   const Options& options)
    : criterion_(std::move(criterion)), split_(split), options_(options), sums_(microbatches), counts_(microbatches) {}

// Gathers the outputs that are sharded over tp.
TensorDict MicrobatchLosses::full(const TensorDict& outputs) const {
  TensorDict full = outputs;
  for (const auto& [name, dim] : split_) {
    if (!dim.placement.sharded() || !full.contains(name)) continue;
    Sizes sizes;
    for (int rank = 0; rank < dim.group->size(); ++rank) sizes.push_back(dim.placement.local_size(rank));
    full.set(name, gather_from_group(full.at(name), *dim.group, -1, sizes));
  }
  return full;
}

Loss MicrobatchLosses::compute(const TensorDict& outputs, const TensorDict& batch,
                               const nn::DeferredLogits& logits) const {
  Loss loss = logits.are_deferred()
                  ? criterion_.deferred_logits()->of_sequences(logits, batch)
                  : criterion_(criterion_.accepts_split_outputs() ? outputs : full(outputs), batch, split_);
  if (!loss.sum.defined() || loss.sum.dim() != 0) {
    throw UsageError({"criterion", "it returned " + describe(loss.sum), "a scalar, or Loss{sum, count} of scalars",
                      "reduce the loss over its tokens"});
  }
  if (loss.count.defined() && loss.count.numel() != 1)
    throw UsageError({"criterion", "its count is " + describe(loss.count), "a scalar, the number of tokens in the sum",
                      "count the tokens of the full microbatch"});
  return loss;
}

torch::Tensor MicrobatchLosses::record(std::size_t microbatch, const Batch& batch, const TensorDict& outputs,
                                       const nn::DeferredLogits& logits) {
  Loss loss = compute(outputs, batch.tensors, logits);
  // A constant, for example of a microbatch without labels, has a root too, because other ranks wait for the
  // collectives of this backward.
  has_graph_ = has_graph_ || loss.sum.requires_grad();
  if (options_.needs_gradients && !loss.sum.requires_grad()) loss.sum = loss.sum + zero_of(outputs);
  if (!loss.count.defined()) {  // a mean: microbatches are weighted by their number of samples
    if (!options_.is_full) refuse_mean_over_ignored(batch.tensors);
    loss.count = torch::tensor(batch.samples);
    loss.sum = loss.sum * static_cast<double>(batch.samples);
  }
  sums_[microbatch] = loss.sum.detach();
  counts_[microbatch] = loss.count;
  return loss.sum * options_.seed_gradient;
}

torch::Tensor MicrobatchLosses::record_none(std::size_t microbatch, const TensorDict& outputs) {
  torch::Tensor root = zero_of(outputs);
  sums_[microbatch] = root.detach();
  counts_[microbatch] = torch::tensor(std::int64_t{0});
  return root;
}

void MicrobatchLosses::record_replayed(std::size_t microbatch, const Batch& batch, const Loss& loss) {
  sums_[microbatch] = loss.sum.detach().clone();
  counts_[microbatch] = replayed_count(batch, loss);
}

// The criterion's count, on the host if the host knows the labels.
torch::Tensor MicrobatchLosses::replayed_count(const Batch& batch, const Loss& loss) const {
  if (!loss.count.defined()) {
    if (!options_.is_full) refuse_mean_over_ignored(batch.tensors);
    return torch::tensor(batch.samples);
  }
  const auto& labelled = criterion_.labelled();
  if (labelled && on_host(batch.tensors.at(labelled->labels)).defined())
    return torch::tensor(*criterion_.counted(batch.tensors));
  return loss.count.detach().clone();
}

void MicrobatchLosses::set(std::vector<torch::Tensor> sums, std::vector<torch::Tensor> counts) {
  sums_ = std::move(sums);
  counts_ = std::move(counts);
  has_graph_ = options_.needs_gradients;
}

std::vector<torch::Tensor> MicrobatchLosses::sums() const {
  std::vector<torch::Tensor> recorded;
  for (const auto& sum : sums_)
    if (sum.defined()) recorded.push_back(sum);
  return recorded;
}

std::int64_t MicrobatchLosses::count() const {
  double count = 0;
  std::vector<torch::Tensor> on_device;
  for (const auto& part : counts_) {
    if (!part.defined()) continue;
    if (part.is_cpu())
      count += number_of(part);
    else
      on_device.push_back(part);
  }
  for (const double part : read_back(on_device)) count += part;
  return static_cast<std::int64_t>(count);
}

}  // namespace gantry
