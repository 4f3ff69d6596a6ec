// Fully sharded parameters for a custom training loop that calls the module's own forward and backward (Zhao et al.,
// PyTorch FSDP, arXiv 2304.11277):
//
//   auto sharded = gantry::fully_shard(*model, mesh["dp"], {.units = {"layers.*"}});
//   torch::optim::AdamW optimizer(sharded.parameters(), 1e-3);
//   loss_of(model->forward(my_samples)).backward();
//   optimizer.step();
//   optimizer.zero_grad();
//
// Each rank of the group holds a shard of every parameter. The parameters of a unit are gathered before the first
// operation that uses one of them, in the forward and in the backward. They are released when another unit is used, and
// after the backward. The next unit is prefetched meanwhile. backward() reduces the gradients unit by unit and adds
// this rank's shard of the result to the .grad of parameters(). The module needs no changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/comm/process_group.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class ProcessGroupMesh;

struct FullyShardOptions {
  // Paths of the unit modules, in forward order; "*" matches one component of a path. A parameter belongs to the
  // innermost unit that contains it. Parameters outside of all units, and parameters of several units (ties), form an
  // additional unit, which stays unsharded from its first use to the end of the backward.
  std::vector<std::string> units = {};
  bool reshard_after_forward = true;  // false: units stay unsharded from the forward to the end of their backward
  bool averages = true;               // true: gradients are averaged over the ranks; false: summed
  // The group of ranks that hold the same shard (hybrid sharding). Gradients are reduced over it too, and its first
  // rank provides the initial values. Not owned; null: no replicas.
  ProcessGroup* replicas = nullptr;
  std::uint64_t seed = 1;  // seed of the weights that DeferredInit has deferred
  // Device to move parameters and buffers to, and to allocate deferred ones on; not set: their current device.
  std::optional<torch::Device> device = std::nullopt;
};

// Handle of a sharded module; copies refer to the same module. Keep it until the module is no longer used, and keep the
// group until after that. All ranks of the group must run the same forwards and backwards in the same order.
class FullySharded {
 public:
  // Returns this rank's shard of each parameter, in the order of the module: the tensors for the optimizer and for
  // checkpoints. A shard consists of rows of the tensor viewed as [-1, last dim], or of elements if it has one
  // dimension, and may be empty. All ranks must modify their shards at the same points of the program. Outside of a
  // backward, the module's own parameters have no gradients, and reading them throws: an optimizer over
  // model->parameters() fails. Code that reads parameters through pointers must call unshard() first.
  std::vector<torch::Tensor> parameters() const;
  const TensorDict& named_parameters() const;  // the same, by the names of the module
  // Returns the placement of each parameter on the mesh whose group was passed to fully_shard(), for checkpoints
  // (fully_sharded_state.h). `sharded`: the result of parallelize_module(), if it was called before. Throws UsageError
  // if the group belongs to another mesh, or to expert axes.
  std::vector<Placement> placements(const ProcessGroupMesh& mesh, const std::vector<Placement>& sharded = {}) const;

  // Returns the norm of all gradients over all ranks, and scales the gradients to `max_norm` if it is larger. Do not
  // use LibTorch's clip_grad_norm_, which sees only this rank's shards: norms of their gradients throw UsageError,
  // except for the infinity norm, which is not detected. Collective over the group. After parallelize_module(), pass
  // its result and its group, so that each element counts once; then collective over both groups. Throws UsageError if
  // ranks share elements.
  double clip_grad_norm(double max_norm);
  double clip_grad_norm(double max_norm, const std::vector<Placement>& sharded, ProcessGroup& over);

  // unshard() gathers the module's own parameters for reading until reshard(). Values that are written to them are
  // lost. Both are collective over the group.
  void unshard();
  void reshard();

 private:
  friend FullySharded fully_shard(torch::nn::Module& module, ProcessGroup& group, const FullyShardOptions& options);
  class Units;
  explicit FullySharded(std::shared_ptr<Units> units) : units_(std::move(units)) {}
  std::shared_ptr<Units> units_;
};

// Shards the module's parameters over the group, in place. Call parallelize_module() before it to shard over other
// axes. Deferred weights are never materialized in full; other weights and all buffers take the values of the group's
// first rank. Parameters that require a gradient at this time are trained. Gradients of bfloat16 and float16 are
// reduced in float32. Collective over the group. Throws ConfigError if a unit does not exist in the module, and
// UsageError if the module is already sharded or is on several devices.
FullySharded fully_shard(torch::nn::Module& module, ProcessGroup& group, const FullyShardOptions& options = {});

}  // namespace gantry
