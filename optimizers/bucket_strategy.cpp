#include "gantry/optimizers/bucket_strategy.h"

#include <algorithm>

namespace gantry {

void BucketStrategy::finish(GradientBucket& bucket) {
  bucket.work.wait();
  bucket.work = {};
}

BucketStrategies::BucketStrategies(const ZeroLevel& zero, const ProcessGroupMesh& mesh, const ParameterShards* shards)
    : stages_apart_(zero.states) {
  if (shards) strategies_.push_back(make_unit_buckets(mesh, *shards));
  if (zero.gradients) strategies_.push_back(make_scattered_buckets(mesh));
  if (zero.states) strategies_.push_back(make_partitioned_buckets(mesh));
  strategies_.push_back(make_full_buckets(mesh));
}

BucketStrategy& BucketStrategies::of(const BucketKind& kind) const {
  return **std::find_if(strategies_.begin(), strategies_.end(),
                        [&](const auto& strategy) { return strategy->takes(kind); });
}

bool BucketStrategies::send_within_backwards() const {
  return std::ranges::any_of(strategies_, [](const auto& strategy) { return strategy->sends_within_backwards(); });
}

}  // namespace gantry
