// How the gradients of a bucket become sums over the replicas, and which of its elements this rank steps. ZeRO
// (Rajbhandari et al., arXiv 1910.02054) is a choice of strategies, each with a file of its own:
//
// - full_buckets: every rank gets the full sum and steps all of it.
// - partitioned_buckets (ZeRO 1): gradients are reduce-scattered; each replica steps a range, and the values are
//   gathered again.
// - scattered_buckets (ZeRO 2): the gradient that a backward adds for a parameter is moved to the bucket at once. The
//   bucket is reduced once it is full and the buckets before it are being reduced, and only a range of the sum is kept.
// - unit_buckets (ZeRO 3): full gradients of a unit exist from its first backward to its REDUCE_GRAD. Then only the sum
//   of the rows that this replica holds is kept.
//
// A strategy works on all buckets that were given to it, and on no others. What is collective is so over the bucket's
// axes, and called for the same buckets in the same order on all of their ranks.
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
  // Makes the memory of a new bucket, zero, and gives the members their places in it. Parameters keep their values.
  virtual void lay_out(GradientBucket& bucket) = 0;

  // True if reductions are launched within backwards, by add() and send_added(); else by send(), once for each
  // accumulation.
  virtual bool sends_within_backwards() const { return false; }
  // Takes what a backward has added to the member's own gradient, if anything. `sends`: sends buckets that are full by
  // now, which is collective.
  virtual void add(GradientBucket& /*bucket*/, BucketMember& /*member*/, bool /*sends*/) {}
  // After a backward: sends the bucket, also an empty one, unless add() has sent it in this backward. Collective.
  virtual void send_added(GradientBucket& /*bucket*/) {}
  // add() has taken something that was not sent.
  virtual bool has_unsent(const GradientBucket& /*bucket*/) const { return false; }
  // For units of sharded parameters (ZeRO 3), whose reductions the schedule launches: allocates full gradients, zero at
  // first; and launches the reduction, once for each accumulation. reduce() is collective.
  virtual void open(GradientBucket& /*bucket*/) {}
  virtual void reduce(GradientBucket& /*bucket*/) {}
  // Launches the reduction of `gradients`. Collective.
  virtual void send(GradientBucket& /*bucket*/) {}
  // Afterwards `sum` is the sum of all that was sent, and nothing is under way.
  virtual void finish(GradientBucket& bucket);
  // Between accumulations: what complete() put together goes, and so does what a step that was given up has left.
  virtual void release(GradientBucket& /*bucket*/) {}

  // Brings every rank's range of the sum to all of them, and shows it in the members' gradients. Collective over them.
  virtual void complete(GradientBucket& /*bucket*/) {}
  // Sends the stepped values of this rank's range to the other replicas. Collective over them.
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

  // The first that takes buckets of this kind.
  BucketStrategy& of(const BucketKind& kind) const;
  // Stages wait for their values apart, and send their gradients apart.
  bool stages_apart() const { return stages_apart_; }
  // True if buckets of some kind are reduced within backwards, whatever parameters are trained at present.
  bool send_within_backwards() const;

 private:
  std::vector<std::unique_ptr<BucketStrategy>> strategies_;  // the last takes whatever the others don't
  bool stages_apart_;
};

}  // namespace gantry
