// The losses of the microbatches of one step, on a rank of the last stage.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/nn/deferred_logits.h"
#include "gantry/plugins/criterion.h"
#include "gantry/tensors/batch.h"

namespace gantry {

class MicrobatchLosses {
 public:
  struct Options {
    double seed_gradient = 1;  // gradient of the sum of the losses
    bool needs_gradients = true;
    bool is_full = true;  // true if the only microbatch is the full global batch, so that any mean is correct
  };
  // `split` must outlive this object.
  MicrobatchLosses(Criterion criterion, const SplitOutputs& split, std::size_t microbatches, const Options& options);

  const Criterion& criterion() const { return criterion_; }
  // Returns the criterion's loss of outputs of the last stage. Throws UsageError unless it is a scalar. `logits`: the
  // head and its input, if the logits are deferred. Collective over tp.
  Loss compute(const TensorDict& outputs, const TensorDict& batch, const nn::DeferredLogits& logits) const;

  // Records the loss of a microbatch, and returns the root of its backward.
  torch::Tensor record(std::size_t microbatch, const Batch& batch, const TensorDict& outputs,
                       const nn::DeferredLogits& logits);
  // The same for a microbatch without samples, or one whose loss another rank computes. The root is zero: other ranks
  // wait for the collectives of its backward.
  torch::Tensor record_none(std::size_t microbatch, const TensorDict& outputs);
  // The same for a loss of a replayed CUDA graph, without calling the criterion.
  void record_replayed(std::size_t microbatch, const Batch& batch, const Loss& loss);
  // The same for all microbatches, whose losses were computed outside of the stages.
  void set(std::vector<torch::Tensor> sums, std::vector<torch::Tensor> counts);

  // True if a loss depends on a tensor that requires a gradient.
  bool has_graph() const { return has_graph_; }
  // The sums of the recorded losses: scalars, on the device on which they were computed.
  std::vector<torch::Tensor> sums() const;
  // The sum of the counts. Waits for those on a device.
  std::int64_t count() const;

 private:
  TensorDict full(const TensorDict& outputs) const;
  torch::Tensor replayed_count(const Batch& batch, const Loss& loss) const;

  Criterion criterion_;
  const SplitOutputs& split_;
  Options options_;
  std::vector<torch::Tensor> sums_, counts_;  // by microbatch; undefined on other stages
  bool has_graph_ = false;
};

}  // namespace gantry
