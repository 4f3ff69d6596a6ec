// A batch in the form that the model takes: its place in the global batch is known, it was checked, and it is
// on the rank's device.
#pragma once

#include <optional>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/plugins/step_counts.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Exchanges the counts of all ranks, and fills in those that the batch does not state. `mine`: without the
// counts of the batch. `criterion`: set on the last stage only. Throws InputError if sequence parallelism
// needs the number of tokens per sample and no rank of the replica knows it. Collective over the batch axes
// and pp.
StepCounts agree_on_counts(Batch& batch, RankCounts mine, const Criterion& criterion, const StageModule& module,
                           bool sequence_parallel, const ProcessGroupMesh& mesh);

// Throws InputError if an entry has another number of samples than the batch, or a type that NumberType
// lacks; the error names the entry. Also throws if samples are outside of the global batch.
void check_batch(const Batch& batch);

// The type of the model's floating-point parameters, except for those that stay in float32; none if they
// differ.
std::optional<torch::ScalarType> real_type_of(const StageModule& module);

// The entries on the rank's device, with real numbers in the model's type. Copies that were started ahead are
// used. Entries that this rank does not read stay on the meta device. During the lifetime of this object the
// host still knows the values that it had.
struct PreparedBatch {
  PreparedBatch(const Batch& given, torch::Device device, std::optional<torch::ScalarType> real_type);
  TensorDict tensors, full;  // entries of Batch::tensors and Batch::full

 private:
  torch::Tensor prepared(const Batch& given, torch::Tensor entry, torch::Device device,
                         std::optional<torch::ScalarType> real_type);
  std::vector<HostCopy> known_;
};

}  // namespace gantry
