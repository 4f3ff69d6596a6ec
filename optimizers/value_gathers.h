// Gathers of stepped values in flight. Each replica steps a range of a bucket (ZeRO 1 and 2), and the others get its
// values before they use the bucket's parameters.
#pragma once

#include <deque>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/optimizers/gradient_bucket.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

class ValueGathers {
 public:
  // The held parameters, which are not owned.
  explicit ValueGathers(const std::vector<HeldTensor>& parameters) : parameters_(parameters) {}

  // Sends this rank's ranges to all replicas, beginning with the first layers, so that a forward may start while the
  // others are in flight. Waits for earlier gathers first. Collective over the replicas.
  void start(std::deque<GradientBucket>& buckets);
  void wait();           // for all parameters
  void wait(int stage);  // for the parameters that the stage holds

 private:
  struct Gather {
    Work work;
    const GradientBucket* bucket;
  };

  bool is_for(const Gather& gather, int stage) const;

  const std::vector<HeldTensor>& parameters_;
  std::vector<Gather> gathers_;  // beginning with the first layers
};

}  // namespace gantry
