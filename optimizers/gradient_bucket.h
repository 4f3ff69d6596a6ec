// A flat bucket of gradients, and which parameters share one. A bucket is a value: what happens to it and when is up to
// its BucketStrategy and to GradientBuffers.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/mesh.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/lazy_gradient.h"
#include "gantry/tensors/released_memory.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

class BucketStrategy;
class ParameterShards;

// Elements of two bytes in a cache line. Tensors in a flat buffer start at multiples of it: matrix multiplications
// round differently if the memory is aligned differently, and replicas whose buffers also hold shards of unequal sizes
// would drift apart.
inline constexpr std::int64_t kLine = 32;
inline std::int64_t aligned(std::int64_t elements) { return (elements + kLine - 1) / kLine * kLine; }

// Parameters of one kind may share a bucket.
struct BucketKind {
  bool late = false;                  // other sums come first: the bucket waits for the sync
  bool overlaps = false;              // several ranks hold some elements of a shard
  int stage = 0;                      // of the parameters; 0 where stages share buckets
  int unit = -1;                      // number in ParameterShards; -1: the parameters are not sharded over replicas
  std::vector<std::string> axes;      // that gradients are summed over, sorted
  std::vector<std::string> replicas;  // of those, the batch axes: along which ranks hold the same parameters, sorted
  torch::ScalarType type = torch::kFloat;
  auto operator<=>(const BucketKind&) const = default;  // NOLINT(modernize-use-nullptr): of std::vector's

  bool is_summed_over_replicas_alone() const { return axes == replicas; }
};

struct BucketMember {
  std::size_t parameter = 0;  // index into the held parameters
  torch::Tensor tensor;       // the parameter itself
  std::int64_t offset = 0;    // in elements
  // A part of the bucket's `gradients`, or of a unit `lazy`'s; undefined while those are not kept.
  torch::Tensor gradient;
  std::shared_ptr<LazyGradient> lazy;  // in units, and for float32 sums of low-precision parameters under ZeRO 2
  std::int64_t own = 0;                // where this rank's rows begin in the bucket's `sum`, of a unit
  bool ready = false;  // nothing more is added to its gradient before the bucket's reduction is launched
};

struct GradientBucket {
  BucketKind kind;
  std::vector<BucketMember> members;
  std::int64_t elements = 0;           // of all members, with what is between them
  BucketStrategy* strategy = nullptr;  // not owned
  Sizes sizes;                         // the elements that each replica steps; empty where every one steps all
  torch::Tensor values;                // where it is partitioned: the parameters, as [elements]
  torch::Tensor gradients;             // this rank's, as [elements]; undefined while they are not kept
  torch::Tensor sum;                   // over the ranks, of the elements that this rank steps
  torch::Tensor previously_reduced;    // reduced sums of an earlier sync, or undefined
  std::size_t missing = 0;             // members that are not ready
  Work work;                           // the sum that is under way
  bool sent = false;                   // of a unit: in this accumulation
  // Of a unit: the memory of `sum`, away from the begin of an accumulation to the unit's reduction.
  std::optional<ReleasedMemory> sum_memory;

  bool is_partitioned() const { return !sizes.empty(); }
  // The elements that rank `replica` of its replicas steps.
  Range range(int replica) const;
  // No member is ready.
  void begin();
  // Zeros, as [count] of the gradients' type: float32 for bfloat16 and float16. `group`: that communicates them in
  // place as long as they stand; null: none does.
  torch::Tensor new_gradients(std::int64_t count, ProcessGroup* group = nullptr) const;
  torch::ScalarType type_of_gradients() const;
  // Gives every member its part of `gradients`.
  void show_gradients();
};

struct BucketRules {
  const Mesh* mesh = nullptr;               // not owned; says which axes share the batch
  std::int64_t bytes = 0;                   // of a bucket's parameters at most, where it has more than one
  const ParameterShards* shards = nullptr;  // not owned; null: no parameter is sharded over replicas
  bool stages_apart = false;  // no bucket has parameters of several stages, but for those that stages share
};

// Distributes those of the held parameters over new buckets, from the last to the first; late buckets come after the
// others. `shared`: parameters that several pipeline ranks hold. No memory is made, and no strategy chosen.
std::vector<GradientBucket> distribute_to_buckets(const std::vector<HeldTensor>& held,
                                                  const std::vector<std::size_t>& parameters,
                                                  const std::set<std::size_t>& shared, const BucketRules& rules);

// Partitions the bucket's elements over its replicas and sets its `sizes`, which are equal: elements that belong to no
// parameter follow the last one. So a reduction over all parts is one call of the library that carries it.
void partition(GradientBucket& bucket, int replicas);

// A tensor on a part of another's memory, from element `offset` on, that autograd does not know as a view: LibTorch's
// zero_grad detaches gradients in place, which views refuse.
torch::Tensor share_memory(const torch::Tensor& tensor, std::int64_t offset, at::IntArrayRef sizes);

}  // namespace gantry
