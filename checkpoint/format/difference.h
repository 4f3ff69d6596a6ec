// How the tensors of two checkpoints, model directories or files differ, name by name. Without LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/verify.h"

namespace gantry {

struct TensorDifference {
  std::string name;
  std::string fault;  // reason why the two cannot be compared ("it is missing in B", other shapes); then the rest is 0
  std::uint64_t elements = 0;
  std::uint64_t different = 0;     // elements whose values are not equal; NaN equals NaN
  double largest = 0;              // absolute difference; infinity where one is NaN and the other is not
  double relative = 0;             // that over the largest absolute entry of the first
  std::vector<std::int64_t> at{};  // the index of the largest
};

// What stands for a name in a comparison: a tensor of a catalog, a matrix's transpose, or a part of a tensor, which is
// the part in `shards`, without a first dim of 1.
struct ComparedTensor {
  std::string key;
  bool transposed = false;
  std::vector<AppliedShard> shards = {};
};
using ComparedNames = std::map<std::string, ComparedTensor>;

// Tensors of both, worst first: what can't be compared, then by relative difference, then by name. Types may differ;
// values are compared. Where one side has kinds ("model/...") and the other has not, the model's are compared. Both
// tensors of a name are in memory at a time. CheckpointError or InputError for damage.
std::vector<TensorDifference> compare_tensors(TensorCatalog& a, TensorCatalog& b, const ByteProgress& progress = {});

// The same, of these names.
std::vector<TensorDifference> compare_tensors(TensorCatalog& a, const ComparedNames& a_names, TensorCatalog& b,
                                              const ComparedNames& b_names, const ByteProgress& progress = {});

}  // namespace gantry
