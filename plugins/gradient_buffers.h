// Where gradients live: flat buckets, each of one dtype and one set of axes over which they are summed. Every held
// parameter's gradient is a view into one, so that nothing is copied, and a bucket travels as one message. Buckets hold
// parameters from the last to the first, which is about the order in which a backward finishes them: a bucket sets out
// as soon as its parameters are ready and the buckets before it have gone, so that all replicas send in one order (Li
// et al., PyTorch Distributed, arXiv 2006.15704).
//
// Under ZeRO 1 (Rajbhandari et al., arXiv 1910.02054) parameters lie in flat buckets as well. Gradients are
// reduce-scattered: each dp rank owns a range of every bucket, its optimizer steps that range, and the values are
// gathered again.
//
// Between syncs the buckets hold unreduced sums. After a sync without zero_grad the reduced sums are put aside, so that
// the next sync never reduces them twice.
#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Parameters that several pipeline ranks hold: their gradients are summed over `group` before anything else.
struct SharedGradient {
  std::size_t parameter = 0;  // index into the held parameters
  ProcessGroup* group = nullptr;
};

struct GradientOptions {
  std::int64_t bucket_bytes = 25 << 20;
  bool shard_over_dp = false;  // ZeRO 1
};

class GradientBuffers {
 public:
  // Parameters keep their order. Attaches at once. Gradients of bfloat16 and float16 parameters are float32. The mesh
  // is not owned.
  GradientBuffers(std::vector<HeldTensor> parameters, std::vector<SharedGradient> shared, const ProcessGroupMesh& mesh,
                  const GradientOptions& options = {});

  // Makes every parameter's gradient a view into its bucket again (a zero_grad of the user's may have removed it).
  // Called before a step's first backward; puts reduced sums aside if there are any.
  void begin_accumulation();

  // While watched, parameter_ready() counts: what it is called for gets no more gradient before the sync.
  void watch(bool on) { watches_ = on; }
  void parameter_ready(std::size_t parameter);
  // All parameters of that stage alone.
  void stage_ready(int stage);

  // Sums elements that tp ranks share, then over shared stages, then over each parameter's gradient axes what has not
  // set out yet, then multiplies by `factor`, then adds what was put aside. Collective over those axes. Once for each
  // accumulation.
  void sync(double factor);

  void zero();
  void scale(double factor);
  const std::vector<HeldTensor>& parameters() const { return parameters_; }
  const std::vector<SharedGradient>& shared() const { return shared_; }
  // After a sync under ZeRO only the owned range of it is the sum, until complete().
  const torch::Tensor& gradient(std::size_t parameter) const { return views_[parameter]; }
  // Brings every range to every dp rank: for those who look at whole gradients. Collective over dp.
  void complete();

  bool sharded(std::size_t parameter) const { return views_[parameter].defined() && bucket_of(parameter).sharded(); }
  // The elements of the flattened local parameter that dp rank `replica` steps; all of them without ZeRO.
  Range owned(std::size_t parameter, int replica) const;
  // This rank's range of a flattened gradient, and of the values, as [elements]; they share the memory.
  torch::Tensor owned_gradient(std::size_t parameter) const;
  torch::Tensor owned_values(std::size_t parameter) const;

  // Sends this rank's stepped ranges to all replicas; wait_values() ends it. Collective over dp.
  void gather_values();
  void wait_values();

 private:
  struct Bucket {
    std::vector<std::string> axes;
    std::vector<std::size_t> members;
    torch::Tensor flat;       // gradients
    torch::Tensor values;     // ZeRO: the parameters
    torch::Tensor put_aside;  // reduced sums of an earlier sync, or undefined
    Sizes sizes;              // ZeRO: of every dp rank's range
    bool late = false;        // waits for the sync: other sums come first
    std::size_t missing = 0;  // members that are not ready
    Work work;
    bool sharded() const { return !sizes.empty(); }
  };

  void make_buckets(const GradientOptions& options);
  void fill_bucket(Bucket& bucket, const GradientOptions& options);
  void start(Bucket& bucket);
  void reset_progress();
  Range own_range(const Bucket& bucket, int replica) const;
  Bucket& bucket_of(std::size_t parameter) { return buckets_[place_[parameter].bucket]; }
  const Bucket& bucket_of(std::size_t parameter) const { return buckets_[place_[parameter].bucket]; }

  struct Place {
    std::size_t bucket = 0;
    std::int64_t offset = 0;
    bool ready = false;
  };

  std::vector<HeldTensor> parameters_;
  std::vector<SharedGradient> shared_;
  const ProcessGroupMesh& mesh_;
  std::vector<Bucket> buckets_;
  std::vector<Place> place_;  // by parameter
  std::vector<torch::Tensor> views_;
  std::vector<Work> gathers_;
  std::size_t next_ = 0;  // the bucket that sets out next
  bool watches_ = false;
  bool reduced_ = false;  // the buckets hold reduced sums
  bool zeroed_ = true;
};

}  // namespace gantry
