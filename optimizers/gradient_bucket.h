// A flat bucket of gradients, and the rules by which parameters share one. A bucket contains only data:
// BucketStrategy and GradientBuffers operate on it.
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

// Number of two-byte elements in a cache line. Tensors in a flat buffer start at multiples of it, because
// matrix multiplications round differently if the memory is aligned differently. Otherwise replicas whose
// buffers also hold shards of unequal sizes would drift apart.
inline constexpr std::int64_t kLine = 32;
inline std::int64_t aligned(std::int64_t elements) { return (elements + kLine - 1) / kLine * kLine; }

// Parameters of one kind may share a bucket.
struct BucketKind {
  bool late = false;              // other reductions come first: the bucket waits for the sync
  bool overlaps = false;          // several ranks hold some elements of a shard
  int stage = 0;                  // stage of the parameters; 0 if stages share buckets
  int unit = -1;                  // number in ParameterShards; -1: not sharded over replicas
  std::vector<std::string> axes;  // axes over which gradients are reduced, sorted
  // The batch axes among `axes`, sorted. Along them, ranks hold the same parameters.
  std::vector<std::string> replicas;
  torch::ScalarType type = torch::kFloat;
  auto operator<=>(const BucketKind&) const = default;  // NOLINT(modernize-use-nullptr): of std::vector's

  bool is_summed_over_replicas_alone() const { return axes == replicas; }
};

struct BucketMember {
  std::size_t parameter = 0;  // index into the held parameters
  torch::Tensor tensor;       // the parameter itself
  std::int64_t offset = 0;    // in elements
  // A part of the bucket's `gradients` or, in a unit, the tensor of `lazy`. Undefined while it is not kept.
  torch::Tensor gradient;
  std::shared_ptr<LazyGradient> lazy;  // in units, and for float32 sums of low-precision parameters under ZeRO 2
  std::int64_t own = 0;                // in a unit: offset of this rank's rows in the bucket's `sum`
  bool ready = false;  // nothing more is added to its gradient before the bucket's reduction is launched
};

struct GradientBucket {
  BucketKind kind;
  std::vector<BucketMember> members;
  std::int64_t elements = 0;           // number of elements, including padding between members
  BucketStrategy* strategy = nullptr;  // not owned
  Sizes sizes;                         // elements that each replica steps; empty: every replica steps all
  torch::Tensor values;                // if partitioned: the parameters, as [elements]
  torch::Tensor gradients;             // gradients of this rank, as [elements]; undefined if not kept
  torch::Tensor sum;                   // reduced gradients of the elements that this rank steps
  torch::Tensor previously_reduced;    // reduced sums of an earlier sync, or undefined
  std::size_t missing = 0;             // members that are not ready
  Work work;                           // the reduction in flight
  bool sent = false;                   // in a unit: the reduction was launched in this accumulation
  // In a unit: the memory of `sum`, released from the start of an accumulation to the unit's reduction.
  std::optional<ReleasedMemory> sum_memory;

  bool is_partitioned() const { return !sizes.empty(); }
  // The range of elements that rank `replica` of its replicas steps.
  Range range(int replica) const;
  // Marks all members as not ready.
  void begin();
  // Returns zeros of shape [count] in the type of the gradients, which is float32 for bfloat16 and float16.
  // `group`: the group that will communicate the tensor in place during its lifetime; null: none.
  torch::Tensor new_gradients(std::int64_t count, ProcessGroup* group = nullptr) const;
  torch::ScalarType type_of_gradients() const;
  // Sets the gradient of every member to its part of `gradients`.
  void show_gradients();
};

struct BucketRules {
  const Mesh* mesh = nullptr;               // not owned; defines the batch axes
  std::int64_t bytes = 0;                   // maximum size of a bucket with more than one parameter
  const ParameterShards* shards = nullptr;  // not owned; null: no parameter is sharded over replicas
  // True: parameters of different stages are in different buckets, except for parameters that stages share.
  bool stages_apart = false;
};

// Distributes the listed ones of the held parameters over new buckets, from last to first; late buckets come
// after the others. `shared`: parameters that several pipeline ranks hold. Allocates no memory and chooses no
// strategy.
std::vector<GradientBucket> distribute_to_buckets(const std::vector<HeldTensor>& held,
                                                  const std::vector<std::size_t>& parameters,
                                                  const std::set<std::size_t>& shared, const BucketRules& rules);

// Partitions the bucket's elements over its replicas, and sets its `sizes` to equal numbers: padding follows
// the last parameter. A reduction over all parts is therefore one call of the communication library.
void partition(GradientBucket& bucket, int replicas);

// Returns a tensor on a part of another tensor's memory, from element `offset` on. For autograd it is not a
// view: LibTorch's zero_grad() detaches gradients in place, which is an error for views.
torch::Tensor share_memory(const torch::Tensor& tensor, std::int64_t offset, at::IntArrayRef sizes);

}  // namespace gantry
