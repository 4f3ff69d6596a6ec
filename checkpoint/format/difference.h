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
  // Reason why the two cannot be compared ("it is missing in B", other shapes); the other fields are then 0.
  std::string fault;
  std::uint64_t elements = 0;
  std::uint64_t different = 0;     // elements whose values are not equal; NaN equals NaN
  double largest = 0;              // absolute difference; infinity if one is NaN and the other is not
  double relative = 0;             // `largest` / largest finite absolute entry of the first tensor
  std::vector<std::int64_t> at{};  // index of the largest difference
};

// The tensor that a name denotes in a comparison: a tensor of a catalog, the transpose of a matrix, or the
// part of a tensor in `shards`, without a first dim of 1.
struct ComparedTensor {
  std::string key;
  bool transposed = false;
  std::vector<AppliedShard> shards = {};
};
using ComparedNames = std::map<std::string, ComparedTensor>;

// Compares the tensors of both by name, worst first: tensors that cannot be compared, then by relative
// difference, then by name. Types may differ, because values are compared. If only one side has kinds
// ("model/..."), only its model tensors are compared. Both tensors of a name are in memory at the same time.
// Throws CheckpointError or InputError for damage.
std::vector<TensorDifference> compare_tensors(TensorCatalog& a, TensorCatalog& b, const ByteProgress& progress = {});

// The same for the given names.
std::vector<TensorDifference> compare_tensors(TensorCatalog& a, const ComparedNames& a_names, TensorCatalog& b,
                                              const ComparedNames& b_names, const ByteProgress& progress = {});

}  // namespace gantry
