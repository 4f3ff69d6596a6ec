// The memory of gradients: flat buckets, each of one dtype and one set of axes over which gradients are
// reduced. Every held parameter's gradient is a view into a bucket, so that nothing is copied and a bucket is
// reduced as one message. Buckets contain parameters from last to first, which is about the order in which a
// backward finishes them. The reduction of a bucket is launched once its parameters are ready and the
// reductions of the buckets before it were launched. All replicas therefore have the same order (Li et al.,
// PyTorch Distributed, arXiv 2006.15704).
//
// The strategy of a bucket reduces it and decides which rank steps which elements; see bucket_strategy.h for
// the strategies of ZeRO. GradientBuffers has the buckets, the order of their reductions, and the rules for
// gradients from step to step.
//
// Parameters may be frozen and unfrozen (requires_grad) during a run, in the same way on all ranks.
// Parameters that require a gradient for the first time get new buckets after the existing ones. A frozen
// parameter keeps its place but has no gradient, so optimizers skip it.
//
// Between syncs the buckets hold unreduced sums. After a sync without zero_grad() the reduced sums are stored
// separately, so that the next sync does not reduce them again.
#pragma once

#include <deque>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/nn/shard_style.h"
#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/optimizers/stepped_part.h"
#include "gantry/optimizers/value_gathers.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// A parameter that several pipeline ranks hold. Its gradient is reduced over `group` before all other
// reductions.
struct SharedGradient {
  std::size_t parameter = 0;  // index into the held parameters
  ProcessGroup* group = nullptr;
};

struct GradientOptions {
  const ParameterShards* shards = nullptr;  // with ZeRO 3: `parameters` are its unsharded(); not owned
  std::int64_t bucket_bytes = 25 << 20;
  int zero = 0;                                 // 0 to 3
  GradientSum overlaps = GradientSum::kAtSync;  // time at which elements that several ranks hold are reduced
};

class GradientBuffers {
 public:
  // Parameters keep their order. Their gradients are attached at once. The gradients of bfloat16 and float16
  // parameters are float32. The mesh is not owned.
  GradientBuffers(std::vector<HeldTensor> parameters, std::vector<SharedGradient> shared, const ProcessGroupMesh& mesh,
                  const GradientOptions& options = {});

  // Makes every parameter's gradient a view into its bucket again, because the program's zero_grad() may have
  // removed it, and leaves out parameters that are now frozen. Called before the first backward of a step.
  // Sets reduced sums aside if there are any. Returns true if the program has removed gradients that were not
  // zero.
  bool begin_accumulation();
  // Adds parameters that now require a gradient. Called before each backward of a step.
  void add_parameters();
  // For a custom loop, whose backwards are not announced: takes over the gradients of parameters that now
  // require one, and gradients that the program's zero_grad() had removed before. Called before sync(), with
  // ZeRO 0 or 1.
  void take_over();
  // For calls whose gradients accumulate, with ZeRO 0 or 1: true if the program has set the gradients of all
  // parameters to none.
  bool were_all_removed() const;
  // For the same case, and if only some gradients were removed or replaced: copies the program's values into
  // the buckets, zero for removed gradients.
  void zero_removed();
  // True if the buckets hold sums that were reduced and not zeroed since.
  bool is_reduced() const { return reduced_; }

  // While watching, a call of parameter_ready() means that the parameter gets no further gradient before the
  // sync.
  void watch(bool on) { watches_ = on; }
  void parameter_ready(std::size_t parameter);
  // Called if autograd reports the gradient. Also records that a backward has reached the parameter.
  void parameter_reached(std::size_t parameter);
  bool was_reached(std::size_t parameter) const { return place_[parameter].reached; }
  // Calls parameter_ready() for all parameters that belong to this stage only.
  void stage_ready(int stage);

  // ZeRO 2. After each backward of a stage, or of a part of it, its gradients are reduced to their owners.
  // scatter_added() and scatter_stage() are collective over the replicas. In each backward a bucket is sent
  // once, in the order of the buckets, regardless of the parameters that a replica uses. A gradient that is
  // added after its bucket was sent waits for the next backward or for the sync. Replicas with different
  // numbers of backwards call hold() instead, and scatter each stage once.
  bool scatters() const { return strategies_.send_within_backwards(); }
  bool has_unsent() const;  // some gradients wait for the sync
  void hold(bool on) { holds_ = on; }
  void scatter_added(int stage);  // sends the buckets that added gradients have filled
  void scatter_stage(int stage);  // also launches the reductions of all other buckets of the stage

  // ZeRO 3. Called after begin_accumulation(): releases the memory of the sums until their reductions, which
  // write all of it.
  void release_sums();
  // ZeRO 3. open_unit() allocates a unit's full gradients before its first backward. reduce_unit() launches
  // their reduction over the replicas, once. Gradients that need another reduction first (parameters that
  // stages share, elements that several ranks hold) are reduced by sync() instead. Collective over the
  // gradients' axes, in the same order on all of their ranks.
  void open_unit(int unit);
  void reduce_unit(int unit);

  // Reduces elements that several ranks hold, then gradients of shared stages, then the rest over each
  // parameter's gradient axes. Multiplies the result by `factor` and adds previously reduced sums. Collective
  // over those axes. Called once per accumulation.
  // `left`: a further factor, which the code that steps may apply together with others in one pass. It is
  // applied at once if there are sums to add to. `any_unsent`: has_unsent() of any rank.
  void sync(double factor, double left = 1, bool any_unsent = false);
  // The factor that still has to be applied to the gradients. scale() applies it. Call multiplied() if you
  // have applied it yourself.
  double left() const { return left_; }
  void multiplied() { left_ = 1; }

  void zero();                // also during a step; waits for its reductions first
  void scale(double factor);  // multiplies by `factor` and by left()
  // Increases with each in-place change of a gradient by any code, except for changes through its data().
  std::uint64_t changes() const;
  const std::vector<HeldTensor>& parameters() const { return parameters_; }
  const std::vector<SharedGradient>& shared() const { return shared_; }
  // True if the parameter has a place in a bucket: it requires a gradient, or did so before.
  bool trained(std::size_t parameter) const { return place_[parameter].trained; }
  // True if the parameter takes part in this step.
  bool steps(std::size_t parameter) const { return place_[parameter].trained && !place_[parameter].frozen; }
  // The gradient of a parameter; undefined if it is not trained. With ZeRO 1, after a sync, only the owned
  // range is the sum, until complete(). With ZeRO 2 it is undefined, except from complete() to the next
  // accumulation. With ZeRO 3 it is the sum of this rank's rows.
  torch::Tensor gradient(std::size_t parameter) const;
  // Gathers every range on every replica, for code that reads full gradients. Collective over the replicas.
  void complete();

  bool sharded(std::size_t parameter) const {
    return trained(parameter) && (shards_ || bucket_of(parameter).is_partitioned());
  }
  // The part of a parameter that this rank keeps: with ZeRO 3 its rows, otherwise all of the held parameter.
  const HeldTensor& held(std::size_t parameter) const;
  // The elements that this rank steps (optimizers/stepped_part.h).
  const Placement& stepped_placement(std::size_t parameter) const { return stepped_[parameter]; }
  torch::Tensor owned_gradient(std::size_t parameter) const { return part_gradient(bucketed(parameter), mesh_); }
  torch::Tensor owned_values(std::size_t parameter) const { return part_values(bucketed(parameter), mesh_); }
  // False while only master weights have the values (ZeRO 3).
  bool has_values(std::size_t parameter) const;

  // Gathers of the values that each replica has stepped (optimizers/value_gathers.h).
  void gather_values() { gathers_.start(buckets_); }
  void wait_values() { gathers_.wait(); }
  void wait_values(int stage) { gathers_.wait(stage); }

 private:
  struct Place {
    std::size_t bucket = 0;
    std::size_t member = 0;  // index in the bucket
    bool trained = false;
    bool frozen = false;   // was trained before, and is left out now
    bool reached = false;  // a backward has reached it at least once
  };

  void add_buckets(const std::vector<std::size_t>& parameters);
  void take_gradients(const std::vector<torch::Tensor>& of_program);
  void show_gradient(std::size_t parameter);
  bool show_gradients();
  void leave_out_frozen();
  void release_buckets();
  void send_ready();
  static void zero(GradientBucket& bucket);
  GradientBucket& bucket_of(std::size_t parameter) { return buckets_[place_[parameter].bucket]; }
  const GradientBucket& bucket_of(std::size_t parameter) const { return buckets_[place_[parameter].bucket]; }
  BucketMember& member_of(std::size_t parameter) { return bucket_of(parameter).members[place_[parameter].member]; }
  const BucketMember& member_of(std::size_t parameter) const {
    return bucket_of(parameter).members[place_[parameter].member];
  }

  BucketedParameter bucketed(std::size_t parameter) const;
  bool is_in_unit(std::size_t parameter) const { return shards_ && trained(parameter); }
  // Units show their gradients themselves.
  bool shows_lazily(std::size_t parameter) const {
    return member_of(parameter).lazy && bucket_of(parameter).kind.unit < 0;
  }

  std::vector<HeldTensor> parameters_;
  std::vector<Placement> stepped_;  // by parameter
  std::vector<SharedGradient> shared_;
  const ProcessGroupMesh& mesh_;
  const ParameterShards* shards_;
  BucketStrategies strategies_;
  BucketRules rules_;
  GradientSum overlaps_;
  // In the order of their reductions. Strategies keep pointers to buckets, so they must not move.
  std::deque<GradientBucket> buckets_;
  std::vector<Place> place_;  // by parameter
  ValueGathers gathers_{parameters_};
  std::size_t next_ = 0;  // the bucket whose reduction is launched next
  bool watches_ = false;
  double left_ = 1;
  bool reduced_ = false;  // the buckets hold reduced sums
  bool zeroed_ = true;
  bool holds_ = false;
};

}  // namespace gantry
