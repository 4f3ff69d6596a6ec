// ZeRO 1: full gradients are kept until the sync, and each replica steps a range of every bucket.
#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/optimizers/partitioned_values.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

class PartitionedBuckets final : public BucketStrategy {
 public:
  explicit PartitionedBuckets(const ProcessGroupMesh& mesh) : mesh_(mesh) {}

  bool takes(const BucketKind& kind) const override { return can_be_partitioned(kind, mesh_); }

  void lay_out(GradientBucket& bucket) override {
    partition_values(bucket, mesh_);
    const Range own = bucket.range(replicas_of(bucket, mesh_).rank());
    bucket.gradients = bucket.new_gradients(bucket.elements, &sums_over(bucket));
    bucket.sum = bucket.gradients.narrow(0, own.begin, own.size());
    bucket.show_gradients();
  }

  void send(GradientBucket& bucket) override {
    ProcessGroup& group = sums_over(bucket);
    bucket.work = bucket.kind.is_summed_over_replicas_alone()
                      ? group.reduce_scatter(bucket.sum, bucket.gradients, bucket.sizes)
                      : group.all_reduce(bucket.gradients);
  }

  void complete(GradientBucket& bucket) override {
    replicas_of(bucket, mesh_).all_gather(bucket.gradients, bucket.sum, bucket.sizes).wait();
  }

  Work gather_values(GradientBucket& bucket) override { return gather_partitioned_values(bucket, mesh_); }

 private:
  ProcessGroup& sums_over(const GradientBucket& bucket) const {
    return bucket.kind.is_summed_over_replicas_alone() ? replicas_of(bucket, mesh_) : mesh_.group(bucket.kind.axes);
  }

  const ProcessGroupMesh& mesh_;
};

}  // namespace

std::unique_ptr<BucketStrategy> make_partitioned_buckets(const ProcessGroupMesh& mesh) {
  return std::make_unique<PartitionedBuckets>(mesh);
}

}  // namespace gantry
