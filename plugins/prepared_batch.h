// A batch as the model takes it: its place in the global batch is known, it was checked, and it lies on the rank's
// device.
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

// Exchanges the counts of all ranks, and fills in those that the batch does not state. `mine`: without the counts of
// the batch. `criterion`: of the last stage, else empty. Throws InputError if sequence parallelism needs the number of
// tokens per sample and no rank of the replica can tell it. Collective over the batch axes and pp.
StepCounts agree_on_counts(Batch& batch, RankCounts mine, const Criterion& criterion, const StageModule& module,
                           bool sequence_parallel, const ProcessGroupMesh& mesh);

// InputError for entries of another number of samples than the batch's or of a type that NumberType has not, naming the
// entry, and for samples that lie outside of the global batch.
void check_batch(const Batch& batch);

// Of the model's parameters, where they are of one type.
std::optional<torch::ScalarType> real_type_of(const StageModule& module);

// The entries on the rank's device, reals in the model's type: copies that travelled ahead are taken. Entries that this
// rank does not read stay on the meta device. For its lifetime the host knows the numbers of what it had.
struct PreparedBatch {
  PreparedBatch(const Batch& given, torch::Device device, std::optional<torch::ScalarType> real_type);
  TensorDict tensors, full;  // as the batch has them

 private:
  torch::Tensor prepared(const Batch& given, torch::Tensor entry, torch::Device device,
                         std::optional<torch::ScalarType> real_type);
  std::vector<HostCopy> known_;
};

}  // namespace gantry
