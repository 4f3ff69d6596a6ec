// Every rank gets the full sum of every bucket and steps all of it.
#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

class FullBuckets final : public BucketStrategy {
 public:
  explicit FullBuckets(const ProcessGroupMesh& mesh) : mesh_(mesh) {}

  bool takes(const BucketKind& /*kind*/) const override { return true; }

  void lay_out(GradientBucket& bucket) override {
    ProcessGroup* group = bucket.kind.axes.empty() ? nullptr : &mesh_.group(bucket.kind.axes);
    bucket.gradients = bucket.new_gradients(bucket.elements, group);
    bucket.sum = bucket.gradients;
    bucket.show_gradients();
  }

  void send(GradientBucket& bucket) override {
    if (!bucket.kind.axes.empty()) bucket.work = mesh_.group(bucket.kind.axes).all_reduce(bucket.gradients);
  }

 private:
  const ProcessGroupMesh& mesh_;
};

}  // namespace

std::unique_ptr<BucketStrategy> make_full_buckets(const ProcessGroupMesh& mesh) {
  return std::make_unique<FullBuckets>(mesh);
}

}  // namespace gantry
