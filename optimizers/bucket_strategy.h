// Strategies for the reduction of a bucket's gradients over the replicas. A strategy also decides which of
// the bucket's elements this rank steps. ZeRO (Rajbhandari et al., arXiv 1910.02054) is a choice of
// strategies, each in a file of its own:
//
// - full_buckets: every rank gets the full sum and steps all of it.
// - partitioned_buckets (ZeRO 1): gradients are reduce-scattered; each replica steps a range, and the values are
//   gathered again.
// - scattered_buckets (ZeRO 2): the gradient that a backward adds for a parameter is moved to the bucket at once. The
//   bucket is reduced once it is full and the buckets before it are being reduced, and only a range of the sum is kept.
// - unit_buckets (ZeRO 3): full gradients of a unit exist from its first backward to its REDUCE_GRAD.
//   Afterwards only the sum of this replica's local shard is kept.
//
// A strategy works only on the buckets that were given to it. Collective functions are collective over the
// bucket's axes, and are called for the same buckets in the same order on all of their ranks.
#pragma once

#include <memory>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/sharding/zero_level.h"
#include "gantry/optimizers/gradient_bucket.h"

namespace gantry {

class BucketStrategy {
 public:
  virtual ~BucketStrategy() = default;

  virtual bool takes(const BucketKind& kind) const = 0;
  // Allocates the memory of a new bucket, filled with zeros, and assigns the members their places in it.
  // Parameters keep their values.
  virtual void lay_out(GradientBucket& bucket) = 0;

  // True if add() and send_added() launch the reductions during backwards. Otherwise send() launches them,
  // once per accumulation.
  virtual bool sends_within_backwards() const { return false; }
  // Takes the gradient that a backward has added to the member's own gradient, if any. `sends`: also launches
  // the reductions of buckets that are full, which is collective.
  virtual void add(GradientBucket& /*bucket*/, BucketMember& /*member*/, bool /*sends*/) {}
  // Called after a backward: launches the reduction of the bucket, even if it is empty, unless add() has
  // launched it in this backward. Collective.
  virtual void send_added(GradientBucket& /*bucket*/) {}
  // True if add() has taken gradients whose reduction was not launched.
  virtual bool has_unsent(const GradientBucket& /*bucket*/) const { return false; }
  // For units of sharded parameters (ZeRO 3), whose reductions the schedule launches. open() allocates full
  // gradients, initially zero. reduce() launches the reduction, once per accumulation; it is collective.
  virtual void open(GradientBucket& /*bucket*/) {}
  virtual void reduce(GradientBucket& /*bucket*/) {}
  // Launches the reduction of `gradients`. Collective.
  virtual void send(GradientBucket& /*bucket*/) {}
  // Completes the reduction in flight. Afterwards `sum` is the sum of all gradients that were sent.
  virtual void finish(GradientBucket& bucket);
  // Called between accumulations: frees the gradients that complete() has gathered, and those of an aborted
  // step.
  virtual void release(GradientBucket& /*bucket*/) {}

  // Gathers every rank's range of the sum on all ranks, and shows the result in the members' gradients.
  // Collective over them.
  virtual void complete(GradientBucket& /*bucket*/) {}
  // Sends the updated values of this rank's range to the other replicas. Collective over them.
  virtual Work gather_values(GradientBucket& /*bucket*/) { return {}; }
};

// The mesh is not owned.
std::unique_ptr<BucketStrategy> make_full_buckets(const ProcessGroupMesh& mesh);
std::unique_ptr<BucketStrategy> make_partitioned_buckets(const ProcessGroupMesh& mesh);
std::unique_ptr<BucketStrategy> make_scattered_buckets(const ProcessGroupMesh& mesh);
std::unique_ptr<BucketStrategy> make_unit_buckets(const ProcessGroupMesh& mesh, const ParameterShards& shards);

// The strategies of a run.
class BucketStrategies {
 public:
  // `shards`: null if no parameter is sharded over replicas; not owned.
  BucketStrategies(const ZeroLevel& zero, const ProcessGroupMesh& mesh, const ParameterShards* shards);

  // The first strategy that takes buckets of this kind.
  BucketStrategy& of(const BucketKind& kind) const;
  // True if stages wait for their values and send their gradients independently of each other.
  bool stages_apart() const { return stages_apart_; }
  // True if buckets of some kind are reduced during backwards, regardless of the parameters that are trained
  // at present.
  bool send_within_backwards() const;

 private:
  std::vector<std::unique_ptr<BucketStrategy>> strategies_;  // the last strategy takes all remaining kinds
  bool stages_apart_;
};

}  // namespace gantry
