// What routers do beside routing: losses that balance their experts, how often each expert is chosen, and the choices
// that a recomputation repeats. A forward knows of it (nn/forward.h).
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "gantry/nn/router.h"

namespace gantry::nn {

// The losses of a step's routers, and what of the whole step they are divided by. docs/experts.md has the formulas.
struct RouterBalance {
  enum class Loss { kNone, kSequence, kMicrobatch };
  Loss loss = Loss::kNone;
  double coefficient = 0;    // of that loss
  double z_coefficient = 0;  // of the mean squared logsumexp
  // Of all replicas: counted labels, which every sum of losses is divided by, sequences, microbatches with samples, and
  // tokens that are not padding.
  double labels = 1, sequences = 1, microbatches = 1, tokens = 1;

  bool is_on() const { return loss != Loss::kNone || z_coefficient > 0; }
};

// By router, how many of this rank's tokens have chosen each expert: [experts] of integers, without padding.
using RouterChoices = std::map<const RouterImpl*, torch::Tensor>;

// The choices of a forward that is run again: noted the first time, and the same the second time, though scores might
// differ in their last bits.
class RepeatedRouting {
 public:
  // `around`: of a recomputation that this one is a part of, or null.
  explicit RepeatedRouting(std::shared_ptr<RepeatedRouting> around) : around_(std::move(around)) {}
  // What was noted, to be repeated from the beginning.
  std::shared_ptr<RepeatedRouting> again() const;
  torch::Tensor ids(const torch::Tensor& chosen);

 private:
  std::shared_ptr<RepeatedRouting> around_;
  std::vector<torch::Tensor> noted_;
  bool repeats_ = false;
  std::size_t next_ = 0;
};

// This rank's part of what all ranks of a sequence know, [samples, tokens]; undefined stays so.
torch::Tensor part_of_sequence(const torch::Tensor& full, ProcessGroup* group);

// Adds what the forward asks of this router. `scores` [..., experts]: what experts are chosen by, without a correction.
// Collective over the ranks that share the tokens' sequences where there is a loss.
void balance(const RouterImpl& router, const torch::Tensor& scores, const Routing& routing);

}  // namespace gantry::nn
