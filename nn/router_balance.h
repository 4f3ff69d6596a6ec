// The tasks of routers in addition to routing: losses that balance their experts, counts of the choices of
// each expert, and choices that a recomputation repeats. They are part of the state of a forward
// (nn/forward.h).
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "gantry/nn/router.h"

namespace gantry::nn {

// The losses of a step's routers, and the totals of the step that they are divided by. See docs/experts.md
// for the formulas.
struct RouterBalance {
  enum class Loss { kNone, kSequence, kMicrobatch };
  Loss loss = Loss::kNone;
  double coefficient = 0;    // factor of the loss
  double z_coefficient = 0;  // factor of the mean squared logsumexp
  // Totals of all replicas: labels that count (the divisor of every sum of losses), sequences, microbatches
  // with samples, and tokens that are not padding.
  double labels = 1, sequences = 1, microbatches = 1, tokens = 1;

  bool is_on() const { return loss != Loss::kNone || z_coefficient > 0; }
};

// For each router, the number of this rank's tokens that have chosen each expert: integers [experts], without
// padding.
using RouterChoices = std::map<const RouterImpl*, torch::Tensor>;

// The choices of a forward that is run again. They are recorded the first time and repeated the second time,
// even if the scores differ in their last bits.
class RepeatedRouting {
 public:
  // `around`: the choices of a recomputation that contains this one, or null.
  explicit RepeatedRouting(std::shared_ptr<RepeatedRouting> around) : around_(std::move(around)) {}
  // Returns a copy that repeats the recorded choices from the first one on.
  std::shared_ptr<RepeatedRouting> again() const;
  torch::Tensor ids(const torch::Tensor& chosen);

 private:
  std::shared_ptr<RepeatedRouting> around_;
  std::vector<torch::Tensor> noted_;
  bool repeats_ = false;
  std::size_t next_ = 0;
};

// This rank's part of a tensor [samples, tokens] that all ranks of a sequence hold. Undefined if `full` is
// undefined.
torch::Tensor part_of_sequence(const torch::Tensor& full, ProcessGroup* group);

// Adds the losses and the counts of this router if the forward needs them. `scores` [..., experts]: the
// scores by which experts are chosen, without the correction. With a loss, it is collective over the ranks
// that share the tokens' sequences.
void balance(const RouterImpl& router, const torch::Tensor& scores, const Routing& routing);

}  // namespace gantry::nn
