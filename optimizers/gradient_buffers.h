// Where gradients live: flat buckets, each of one dtype and one set of axes over which they are summed. Every held
// parameter's gradient is a view into one, so that nothing is copied, and a bucket travels as one message. Buckets hold
// parameters from the last to the first, which is about the order in which a backward finishes them. A bucket is
// reduced as soon as its parameters are ready and the buckets before it are being reduced, so that all replicas have
// one order (Li et al., PyTorch Distributed, arXiv 2006.15704).
//
// How a bucket becomes a sum, and who steps which of its elements, is its strategy's: bucket_strategy.h has those of
// ZeRO. Here are the buckets, the order of their reductions, and what becomes of gradients from step to step.
//
// Parameters may be frozen and unfrozen (requires_grad) in the midst of a run, on all ranks alike. One that did not
// require a gradient before gets a bucket with others of its kind, behind those there are. One that is frozen keeps its
// place, and has no gradient: optimizers pass it over.
//
// Between syncs the buckets hold unreduced sums. After a sync without zero_grad the reduced sums are kept apart, so
// that the next sync never reduces them twice.
#pragma once

#include <deque>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/nn/shard_style.h"
#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Parameters that several pipeline ranks hold: their gradients are summed over `group` before anything else.
struct SharedGradient {
  std::size_t parameter = 0;  // index into the held parameters
  ProcessGroup* group = nullptr;
};

struct GradientOptions {
  const ParameterShards* shards = nullptr;  // with ZeRO 3: the parameters are its unsharded(); not owned
  std::int64_t bucket_bytes = 25 << 20;
  int zero = 0;                                 // 0 to 3
  GradientSum overlaps = GradientSum::kAtSync;  // when elements that several ranks hold are summed
};

class GradientBuffers {
 public:
  // Parameters keep their order. Attaches at once. Gradients of bfloat16 and float16 parameters are float32. The mesh
  // is not owned.
  GradientBuffers(std::vector<HeldTensor> parameters, std::vector<SharedGradient> shared, const ProcessGroupMesh& mesh,
                  const GradientOptions& options = {});

  // Makes every parameter's gradient a view into its bucket again (a zero_grad of the user's may have removed it), and
  // leaves out parameters that are frozen by now. Called before a step's first backward; puts reduced sums aside if
  // there are any. True where somebody else has removed gradients that were not zero.
  bool begin_accumulation();
  // Brings in parameters that have come to require a gradient. Called before each backward of a step.
  void add_parameters();
  // Takes over the gradients of a loop whose backwards nobody announced: of parameters that came to require one, and
  // those that a zero_grad of the user's had removed before. Before sync(), with ZeRO 0 or 1.
  void take_over();
  // Between calls that add up, with ZeRO 0 or 1: true if the program has set the gradients of all parameters to none.
  bool were_all_removed() const;
  // Then, or if only some were removed or replaced: the buckets get the program's values, zero for removed ones.
  void zero_removed();
  // The buckets hold sums that were reduced and not zeroed since.
  bool is_reduced() const { return reduced_; }

  // While watched, parameter_ready() counts: what it is called for gets no more gradient before the sync.
  void watch(bool on) { watches_ = on; }
  void parameter_ready(std::size_t parameter);
  // As autograd reports it: remembers, too, that a backward has reached the parameter.
  void parameter_reached(std::size_t parameter);
  bool was_reached(std::size_t parameter) const { return place_[parameter].reached; }
  // All parameters of that stage alone.
  void stage_ready(int stage);

  // ZeRO 2. After each backward of a stage, or of a part of it, its gradients are reduced to their owners. Both calls
  // are collective over the replicas. In each backward a bucket is sent once, in the order of the buckets, whatever
  // parameters a replica uses. A gradient that is added after its bucket was sent waits for the next backward or for
  // the sync. Replicas with different numbers of backwards hold() instead, and scatter each stage once.
  bool scatters() const { return strategies_.send_within_backwards(); }
  bool has_unsent() const;  // some gradients wait for the sync
  void hold(bool on) { holds_ = on; }
  void scatter_added(int stage);  // what was added, which may fill buckets
  void scatter_stage(int stage);  // and the reduction of every bucket is launched

  // ZeRO 3. After begin_accumulation(): the memory of sums goes until their reductions, which write all of them.
  void release_sums();
  // ZeRO 3. A unit's full gradients get memory before its first backward, and are summed over the replicas once: by
  // reduce_unit(), but for those that other sums come before (ties of stages, elements that several ranks hold),
  // which the sync sums. Collective over the gradients' axes, in one order on all of their ranks.
  void open_unit(int unit);
  void reduce_unit(int unit);

  // Sums elements that several ranks hold, then over shared stages, then over each parameter's gradient axes what is
  // not reduced yet, then multiplies by `factor`, then adds what was previously reduced. Collective over those axes.
  // Once for each accumulation. `left`: a further factor, which who steps the gradients may take out with others in one
  // pass; it is multiplied by at once where there is something to be added to. `any_unsent`: has_unsent() of any rank.
  void sync(double factor, double left = 1, bool any_unsent = false);
  // What the sums are still to be multiplied by, until scale(), or multiplied() by who did so.
  double left() const { return left_; }
  void multiplied() { left_ = 1; }

  void zero();                // also in the middle of a step, whose reductions end first
  void scale(double factor);  // by that and by what is left
  // Grows with each change of a gradient in place, whoever makes it; but not by way of its data().
  std::uint64_t changes() const;
  const std::vector<HeldTensor>& parameters() const { return parameters_; }
  const std::vector<SharedGradient>& shared() const { return shared_; }
  // It has a place in a bucket: it requires a gradient, or did so once.
  bool trained(std::size_t parameter) const { return place_[parameter].trained; }
  // It takes part in this step.
  bool steps(std::size_t parameter) const { return place_[parameter].trained && !place_[parameter].frozen; }
  // After a sync under ZeRO only the owned range of it is the sum, until complete(). Undefined for what is not trained,
  // and under ZeRO 2 but from complete() to the next accumulation. Under ZeRO 3 the sum of this rank's rows.
  torch::Tensor gradient(std::size_t parameter) const;
  // Brings every range to every replica: for those who look at full gradients. Collective over them.
  void complete();

  bool sharded(std::size_t parameter) const {
    return trained(parameter) && (shards_ || bucket_of(parameter).is_partitioned());
  }
  // What replicas of a parameter have in common: under ZeRO 3 this rank's rows.
  const HeldTensor& held(std::size_t parameter) const;
  // How what this rank steps of a parameter lies on the mesh: its placement without ZeRO, and with it one
  // sharded further over the replicas, by elements of the result of the earlier shards. Its ranges are those of the
  // ranks which share this rank's other coordinates.
  const Placement& stepped_placement(std::size_t parameter) const { return stepped_[parameter]; }
  // This rank's range of a flattened gradient, and of the values, as [elements]; they share the memory.
  torch::Tensor owned_gradient(std::size_t parameter) const;
  torch::Tensor owned_values(std::size_t parameter) const;
  // False where masters alone have them for now (ZeRO 3).
  bool has_values(std::size_t parameter) const;

  // Sends this rank's stepped ranges to all replicas, those of the first layers first, so that a forward may begin
  // while the others travel. Collective over them.
  void gather_values();
  void wait_values();           // of all parameters
  void wait_values(int stage);  // of those that the stage holds

 private:
  struct Place {
    std::size_t bucket = 0;
    std::size_t member = 0;  // of the bucket
    bool trained = false;
    bool frozen = false;   // trained once, and left out since
    bool reached = false;  // by a backward, ever
  };

  void add_buckets(const std::vector<std::size_t>& parameters);
  void show_gradient(std::size_t parameter);
  bool show_gradients();
  void leave_out_frozen();
  void release_buckets();
  void send_ready();
  static void zero(GradientBucket& bucket);
  // The elements of the flattened local parameter that replica `replica` steps; all of them without ZeRO.
  Range owned(std::size_t parameter, int replica) const;
  int replica_of(const GradientBucket& bucket) const;  // this rank among the bucket's replicas
  bool has_stage(const GradientBucket& bucket, int stage) const;
  GradientBucket& bucket_of(std::size_t parameter) { return buckets_[place_[parameter].bucket]; }
  const GradientBucket& bucket_of(std::size_t parameter) const { return buckets_[place_[parameter].bucket]; }
  BucketMember& member_of(std::size_t parameter) { return bucket_of(parameter).members[place_[parameter].member]; }
  const BucketMember& member_of(std::size_t parameter) const {
    return bucket_of(parameter).members[place_[parameter].member];
  }

  Placement make_stepped_placement(std::size_t parameter) const;
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
  std::deque<GradientBucket> buckets_;  // in the order of their reductions; strategies know them by their place
  std::vector<Place> place_;            // by parameter
  std::vector<Work> gathers_;           // of values, by bucket; empty: none is under way
  std::size_t next_ = 0;                // the bucket whose reduction is launched next
  bool watches_ = false;
  double left_ = 1;
  bool reduced_ = false;  // the buckets hold reduced sums
  bool zeroed_ = true;
  bool holds_ = false;
};

}  // namespace gantry
