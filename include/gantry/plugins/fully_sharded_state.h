// Checkpoints of a loop of one's own around fully_shard(): its parameters' rows and the state of the program's own
// optimizer, saved and loaded by checkpoint/checkpoint.h:
//
//   gantry::FullyShardedState state(sharded, mesh, {.optimizer = &optimizer});
//   gantry::save_checkpoint({.directory = "runs/mine", .step = step}, state, mesh);
//   gantry::load_checkpoint(gantry::require_checkpoint("runs/mine"), state, mesh);
//
// They are checkpoints like all others: any number of ranks reads what another one wrote, and so do boosted models with
// the same parameters, in every layout and ZeRO stage, and the other way round. Buffers are no part of them.
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
  torch::optim::Optimizer* optimizer = nullptr;  // over parameters(), some or all; not owned. Null: weights alone
  // That were taken: what boosted models go on from. Needed for a save where the optimizer does not count them (SGD,
  // Lion); absent: its own count.
  std::optional<std::int64_t> steps = std::nullopt;
  std::vector<Placement> cut = {};  // what parallelize_module gave, where it came first
};

class FullyShardedState final : public StateSource {
 public:
  // The mesh is not owned. UsageError as of FullySharded::placements().
  FullyShardedState(FullySharded sharded, const ProcessGroupMesh& mesh, const FullyShardedStateOptions& options = {});

  // A state tensor that the optimizer has not made yet is made, zero. UsageError for an optimizer whose state is not
  // known.
  std::vector<StateEntry> state_entries() override;
  int first_holder(const Placement& /*placement*/) const override { return 0; }
  // UsageError where nobody says how many steps were taken.
  nlohmann::json state_numbers() const override;
  // Whole parameters are old from here on, and the optimizer's counts are those of the checkpoint.
  void load_state_numbers(const nlohmann::json& numbers) override;

 private:
  // Calls `take` with each parameter that the optimizer steps, and its place.
  void for_stepped(const std::function<void(const torch::Tensor&, std::size_t)>& take) const;
  HeldTensor placed(const torch::Tensor& tensor, std::size_t parameter) const;

  FullySharded sharded_;
  const ProcessGroupMesh& mesh_;
  FullyShardedStateOptions options_;
  std::vector<torch::Tensor> parameters_;
  std::vector<Placement> placements_;
};

}  // namespace gantry
