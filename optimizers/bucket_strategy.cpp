#include "gantry/optimizers/bucket_strategy.h"

#include <algorithm>

namespace gantry {

void BucketStrategy::finish(GradientBucket& bucket) {
  bucket.work.wait();
  bucket.work = {};
}

BucketStrategies::BucketStrategies(int zero, const ProcessGroupMesh& mesh) : stages_apart_(zero > 0) {
  if (zero > 1) strategies_.push_back(make_scattered_buckets(mesh));
  if (zero > 0) strategies_.push_back(make_partitioned_buckets(mesh));
  strategies_.push_back(make_whole_buckets(mesh));
}

BucketStrategy& BucketStrategies::of(const BucketKind& kind) const {
  return **std::find_if(strategies_.begin(), strategies_.end(),
                        [&](const auto& strategy) { return strategy->takes(kind); });
}

}  // namespace gantry
