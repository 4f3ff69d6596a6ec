// One call that makes an ordinary model tensor-parallel: for inference and training in a loop of one's own, without a
// pipeline and without a plugin.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/policies/policy.h"

namespace gantry {

// What initialize() leaves behind: the groups, which the model communicates over and which must outlive it, and how its
// parameters lie.
struct TensorParallelModel {
  std::unique_ptr<ProcessGroupMesh> mesh;
  std::vector<Placement> placements;

  // Averages the gradients over the replicas of dp, after a backward and before the optimizer's step. Nothing for one
  // replica. Collective over dp.
  void average_gradients(torch::nn::Module& model) const;
};

// Splits `model` over tp in place, by the registered policy for its class. Its forward then takes whole inputs and
// gives whole outputs on every rank, and backward() leaves complete gradients of this rank's parts. An optimizer may be
// built before (if it has not stepped) or after. Values come from rank 0, or from the seed under DeferredInit.
//
// `config`: a YAML or JSON file with Gantry's keys, of which parallel and train.seed matter, or with OSLO's
// {"model_parallelism": {"tensor_parallel_size": N, "pipeline_parallel_size": 1}}. Called within gantry::launch, whose
// mesh it must agree with. Collective over the world. ConfigError for a model without a policy, sizes that do not fit,
// a pipeline, unknown keys, or a model that was split before; UsageError outside a launch.
TensorParallelModel initialize(torch::nn::Module& model, const std::string& config);

template <class Holder>
requires requires(const Holder& holder) { holder.ptr(); }
TensorParallelModel initialize(const Holder& model, const std::string& config) { return initialize(*model, config); }

}  // namespace gantry
