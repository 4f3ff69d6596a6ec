#include "gantry/plugins/stop_vote.h"

#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

bool StopVote::operator()() {
  if (group_.size() == 1) return wants_();
  if (ballot_.defined()) {
    count_.wait();
    if (number_of(ballot_) > 0) return true;
  }
  ballot_ = torch::full({1}, wants_() ? 1.0 : 0.0, torch::kFloat64);
  count_ = group_.all_reduce(ballot_, ReduceOp::kMax);
  return false;
}

}  // namespace gantry
