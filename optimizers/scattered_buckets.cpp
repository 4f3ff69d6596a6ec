// ZeRO 2: gradients are on their way to the replica that owns them while the backward runs. Whole buckets at a time:
// one travels while the next one fills.
#include <set>

#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/optimizers/partitioned_values.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

class ScatteredBuckets final : public BucketStrategy {
 public:
  explicit ScatteredBuckets(const ProcessGroupMesh& mesh) : mesh_(mesh) {}

  // Parameters whose gradients are summed otherwise first, or over other axes too, keep them whole until the sync.
  bool takes(const BucketKind& kind) const override {
    return can_be_partitioned(kind, mesh_) && !kind.late && kind.is_summed_over_replicas_alone();
  }

  void lay_out(GradientBucket& bucket) override {
    partition_values(bucket, mesh_);
    bucket.sum = bucket.new_gradients(own_range(bucket).size());
  }

  bool sends_within_backwards() const override { return true; }

  // A parameter that is used again afterwards has its bucket reduced again.
  void add(GradientBucket& bucket, BucketMember& member) override {
    const torch::NoGradGuard no_grad;
    auto& gradient = member.tensor.mutable_grad();
    if (!gradient.defined()) return;
    finish(bucket);
    if (!bucket.gradients.defined()) bucket.gradients = bucket.new_gradients(bucket.elements);
    bucket.gradients.narrow(0, member.offset, gradient.numel()).view(gradient.sizes()).add_(gradient);
    gradient.reset();
    if (member.ready) return;
    member.ready = true;
    if (--bucket.missing == 0) set_out(bucket);
  }

  void send_added(GradientBucket& bucket) override {
    const bool filled = bucket.gradients.defined() && &bucket != travelling_;
    if (filled || !sent_.contains(&bucket)) set_out(bucket);
    sent_.erase(&bucket);
  }

  void finish(GradientBucket& bucket) override {
    if (&bucket != travelling_) return;
    const torch::NoGradGuard no_grad;
    travelling_ = nullptr;
    BucketStrategy::finish(bucket);
    const Range own = own_range(bucket);
    bucket.sum.add_(bucket.gradients.narrow(0, own.begin, own.size()));
    bucket.gradients.reset();
  }

  void release(GradientBucket& bucket) override {
    finish(bucket);
    sent_.erase(&bucket);
    bucket.gradients.reset();
    for (auto& member : bucket.members) member.gradient.reset();
  }

  void complete(GradientBucket& bucket) override {
    bucket.gradients = bucket.new_gradients(bucket.elements);
    replicas_of(bucket, mesh_).all_gather(bucket.gradients, bucket.sum, bucket.sizes).wait();
    bucket.show_gradients();
  }

  Work gather_values(GradientBucket& bucket) override { return gather_partitioned_values(bucket, mesh_); }

 private:
  Range own_range(const GradientBucket& bucket) const { return bucket.range(replicas_of(bucket, mesh_).rank()); }

  void set_out(GradientBucket& bucket) {
    if (travelling_) finish(*travelling_);
    if (!bucket.gradients.defined()) bucket.gradients = bucket.new_gradients(bucket.elements);
    const Range own = own_range(bucket);
    torch::Tensor own_part = bucket.gradients.narrow(0, own.begin, own.size());
    bucket.work = replicas_of(bucket, mesh_).reduce_scatter(own_part, bucket.gradients, bucket.sizes);
    bucket.begin();
    travelling_ = &bucket;
    sent_.insert(&bucket);
  }

  const ProcessGroupMesh& mesh_;
  GradientBucket* travelling_ = nullptr;
  std::set<const GradientBucket*> sent_;  // since the last send_added
};

}  // namespace

std::unique_ptr<BucketStrategy> make_scattered_buckets(const ProcessGroupMesh& mesh) {
  return std::make_unique<ScatteredBuckets>(mesh);
}

}  // namespace gantry
