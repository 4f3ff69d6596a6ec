// Checkpoints for a custom training loop with fully_shard(). They contain the shards and the state of the program's own
// optimizer, and are saved and loaded with checkpoint/checkpoint.h:
//
//   gantry::FullyShardedState state(sharded, mesh, {.optimizer = &optimizer});
//   gantry::save_checkpoint({.directory = "runs/mine", .step = step}, state, mesh);
//   gantry::load_checkpoint(gantry::require_checkpoint("runs/mine"), state, mesh);
//
// The format is that of all Gantry checkpoints. They can be loaded with any number of ranks, and by boosted models with
// the same parameters in every layout and ZeRO stage, and vice versa. Buffers are not included.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/plugins/fully_shard.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

struct FullyShardedStateOptions {
  torch::optim::Optimizer* optimizer = nullptr;  // over all or some of parameters(); not owned; null: weights only
  // Number of optimizer steps taken, from which boosted models continue. Required to save if the optimizer does not
  // count its steps (SGD, Lion). Not set: the optimizer's own count.
  std::optional<std::int64_t> steps = std::nullopt;
  std::vector<Placement> sharded = {};  // the result of parallelize_module(), if it was called before
};

class FullyShardedState final : public StateSource {
 public:
  // The mesh is not owned. Throws UsageError like FullySharded::placements().
  FullyShardedState(FullySharded sharded, const ProcessGroupMesh& mesh, const FullyShardedStateOptions& options = {});

  // Creates missing state tensors of the optimizer, with zeros. Throws UsageError if the type of the optimizer is
  // unknown.
  std::vector<StateEntry> state_entries() override;
  int first_holder(const Placement& /*placement*/) const override { return 0; }
  // Throws UsageError if neither the optimizer nor the options provide the number of steps.
  nlohmann::json state_numbers() const override;
  // Marks gathered parameters as outdated, and sets the optimizer's step counts to those of the checkpoint.
  void load_state_numbers(const nlohmann::json& numbers) override;

 private:
  // Calls `take` with each parameter that the optimizer updates, and its index.
  void for_stepped(const std::function<void(const torch::Tensor&, std::size_t)>& take) const;
  HeldTensor placed(const torch::Tensor& tensor, std::size_t parameter) const;

  FullySharded sharded_;
  const ProcessGroupMesh& mesh_;
  FullyShardedStateOptions options_;
  std::vector<torch::Tensor> parameters_;
  std::vector<Placement> placements_;
};

}  // namespace gantry
