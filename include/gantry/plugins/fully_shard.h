// Fully sharded parameters for a loop of one's own (Zhao et al., PyTorch FSDP, arXiv 2304.11277), around a module's own
// forward and backward:
//
//   auto sharded = gantry::fully_shard(*model, mesh["dp"], {.units = {"layers.*"}});
//   torch::optim::AdamW optimizer(sharded.parameters(), 1e-3);
//   loss_of(model->forward(my_samples)).backward();
//   optimizer.step();
//   optimizer.zero_grad();
//
// Each rank of the group holds rows of every parameter. The parameters of a unit are gathered when something is
// computed with one of them, in the forward and in the backward, and released when another unit's are used, and after
// the backward; the next unit travels meanwhile. backward() sums the gradients unit by unit and leaves this rank's rows
// of the sums in the .grad of parameters(), added to what is there. The module need not know.
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
  // Paths of modules, "*" for one part of one, in the order in which the forward runs them. Parameters belong to the
  // innermost unit that they lie in; those in none, or in several (ties), form one unit of their own, which is whole
  // from its first use to the end of the backward.
  std::vector<std::string> units = {};
  bool reshard_after_forward = true;  // false: units stay whole from the forward to the end of their backward
  bool averages = true;               // gradients over the ranks; false: sums
  // Ranks with the same rows: replicas of shards. Gradients are summed over them too, and values that are there already
  // are those of their first rank. Not owned; null: there are none.
  ProcessGroup* replicas = nullptr;
  std::uint64_t seed = 1;  // of weights that DeferredInit has deferred
  // Where parameters and buffers lie then, and deferred ones get their memory; absent: where they are.
  std::optional<torch::Device> device = std::nullopt;
};

// The handle of a sharded module; copies are of the same. It outlives the module's uses, and the group outlives it. All
// ranks of the group run the same forwards and backwards in the same order.
class FullySharded {
 public:
  // This rank's rows of each parameter, in the module's order: what an optimizer steps and a checkpoint has. A tensor
  // is seen as [-1, last dim], one of a single dim by elements; rows may be none. All ranks write their rows alike. The
  // module's own parameters have no gradients outside of a backward, and what reads these is an error: an optimizer
  // over model->parameters().
  std::vector<torch::Tensor> parameters() const;
  const TensorDict& named_parameters() const;  // the same, by the module's names
  // How each of them lies on the mesh whose group was given to fully_shard(): what checkpoints go by
  // (fully_sharded_state.h). `cut`: what parallelize_module gave. UsageError for a group of another mesh, or along axes
  // of experts.
  std::vector<Placement> placements(const ProcessGroupMesh& mesh, const std::vector<Placement>& cut = {}) const;

  // Gives the norm of all gradients, of all ranks' rows, and scales them to `max_norm` where it is larger. LibTorch's
  // clip_grad_norm_ would see the rows of one rank alone: it is a UsageError, but for the infinity norm, which is not
  // noticed. Collective over the group. After parallelize_module with what that gave, and over its group too: each
  // element counts once. UsageError where its ranks share elements.
  double clip_grad_norm(double max_norm);
  double clip_grad_norm(double max_norm, const std::vector<Placement>& cut, ProcessGroup& over);

  // The module's own parameters are whole from here to reshard(), for who reads them; what is written to them is lost.
  // Both are collective over the group.
  void unshard();
  void reshard();

 private:
  friend FullySharded fully_shard(torch::nn::Module& module, ProcessGroup& group, const FullyShardOptions& options);
  class Units;
  explicit FullySharded(std::shared_ptr<Units> units) : units_(std::move(units)) {}
  std::shared_ptr<Units> units_;
};

// Cuts the module's parameters over the group, in place. Other axes' cuts come first (parallelize_module). Weights that
// are deferred are never whole anywhere; others, and buffers, are those of the group's first rank. What requires a
// gradient by now is trained, and gradients of bfloat16 and float16 are summed in float32. Collective over the group.
// ConfigError for a unit that the module does not have; UsageError for a module that is sharded already, or lies on
// several devices.
FullySharded fully_shard(torch::nn::Module& module, ProcessGroup& group, const FullyShardOptions& options = {});

}  // namespace gantry
