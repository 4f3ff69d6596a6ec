// ZeRO 2: gradients are sent to the replica that owns them during the backward, a full bucket at a time: one
// is in flight while the next one fills.
#include <map>
#include <set>
#include <vector>

#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/optimizers/partitioned_values.h"
#include "gantry/tensors/lazy_gradient.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

class ScatteredBuckets final : public BucketStrategy {
 public:
  explicit ScatteredBuckets(const ProcessGroupMesh& mesh) : mesh_(mesh) {}

  // Parameters whose gradients need another reduction first, or are reduced over other axes too, keep full
  // gradients until the sync.
  bool takes(const BucketKind& kind) const override {
    return can_be_partitioned(kind, mesh_) && !kind.late && kind.is_summed_over_replicas_alone();
  }

  void lay_out(GradientBucket& bucket) override {
    partition_values(bucket, mesh_);
    bucket.sum = bucket.new_gradients(own_range(bucket).size());
    of_stage_[bucket.kind.stage].push_back(&bucket);
    if (bucket.type_of_gradients() == bucket.kind.type) return;
    for (auto& member : bucket.members)
      member.lazy = std::make_shared<LazyGradient>(member.tensor, bucket.type_of_gradients(),
                                                   "a gradient is read before a backward pass has computed it");
  }

  bool sends_within_backwards() const override { return true; }

  void add(GradientBucket& bucket, BucketMember& member, bool sends) override {
    const torch::NoGradGuard no_grad;
    auto& gradient = member.tensor.mutable_grad();
    const bool is_lazy = member.lazy && gradient.is_same(member.lazy->gradient());
    if (is_lazy ? !member.lazy->has_values() : !gradient.defined()) return;
    finish(bucket);
    if (!bucket.gradients.defined()) bucket.gradients = bucket.new_gradients(bucket.elements);
    bucket.gradients.narrow(0, member.offset, gradient.numel()).view(gradient.sizes()).add_(gradient);
    is_lazy ? member.lazy->clear() : gradient.reset();
    if (member.ready) return;
    member.ready = true;
    if (--bucket.missing == 0 && sends) send_full(bucket.kind.stage);
  }

  // Once per backward, because other replicas may not have used the parameter again.
  void send_added(GradientBucket& bucket) override {
    if (!sent_.contains(&bucket)) set_out(bucket);
    sent_.erase(&bucket);
    bucket.begin();
  }

  bool has_unsent(const GradientBucket& bucket) const override {
    return bucket.gradients.defined() && &bucket != travelling_;
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
    for (auto& member : bucket.members) {
      member.gradient.reset();
      if (member.lazy) member.lazy->hide();
    }
  }

  void complete(GradientBucket& bucket) override {
    bucket.gradients = bucket.new_gradients(bucket.elements);
    replicas_of(bucket, mesh_).all_gather(bucket.gradients, bucket.sum, bucket.sizes).wait();
    bucket.show_gradients();
  }

  Work gather_values(GradientBucket& bucket) override { return gather_partitioned_values(bucket, mesh_); }

 private:
  Range own_range(const GradientBucket& bucket) const { return bucket.range(replicas_of(bucket, mesh_).rank()); }

  // Replicas that use different parameters fill their buckets in a different order, so all of them send in
  // the order of the buckets.
  void send_full(int stage) {
    for (GradientBucket* bucket : of_stage_.at(stage)) {
      if (sent_.contains(bucket)) continue;
      if (bucket->missing > 0) return;
      set_out(*bucket);
    }
  }

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
  std::map<int, std::vector<GradientBucket*>> of_stage_;  // in the order in which each backward sends them
  GradientBucket* travelling_ = nullptr;
  std::set<const GradientBucket*> sent_;  // since the last send_added
};

}  // namespace

std::unique_ptr<BucketStrategy> make_scattered_buckets(const ProcessGroupMesh& mesh) {
  return std::make_unique<ScatteredBuckets>(mesh);
}

}  // namespace gantry
