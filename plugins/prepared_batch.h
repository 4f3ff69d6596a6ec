// A batch as the model takes it.
#pragma once

#include <optional>
#include <vector>

#include "gantry/policies/sharder.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Of the model's parameters, where they are of one type.
std::optional<torch::ScalarType> real_type_of(const StageModule& module);

// The entries on the rank's device, reals in the model's type. Entries that this rank does not read stay on the meta
// device. For its lifetime the host knows the numbers of what it had.
struct PreparedBatch {
  PreparedBatch(const TensorDict& given, torch::Device device, std::optional<torch::ScalarType> real_type);
  TensorDict tensors;

 private:
  std::vector<HostCopy> known_;
};

}  // namespace gantry
