#include "gantry/optimizers/value_gathers.h"

#include <algorithm>

#include "gantry/optimizers/bucket_strategy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
void ValueGathers::start(std::deque<GradientBucket>& buckets) {
  const torch::NoGradGuard no_grad;
  wait();
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket)
    gathers_.push_back({bucket->strategy->gather_values(*bucket), &*bucket});
}

bool ValueGathers::is_for(const Gather& gather, int stage) const {
  return std::ranges::any_of(gather.bucket->members, [&](const BucketMember& member) {
    const auto& stages = parameters_[member.parameter].placement.stages;
    return std::ranges::find(stages, stage) != stages.end();
  });
}

void ValueGathers::wait() {
  for (auto& gather : gathers_) gather.work.wait();
  gathers_.clear();
}

void ValueGathers::wait(int stage) {
  for (auto& gather : gathers_) {
    if (!is_for(gather, stage)) continue;
    gather.work.wait();
    gather.work = {};
  }
}

}  // namespace gantry
