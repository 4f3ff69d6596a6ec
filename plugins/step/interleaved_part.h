// Overlapped pairs of a forward and a backward, whose pieces run in turn (split_backward.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "gantry/plugins/split_backward.h"
#include "gantry/plugins/step/step_part.h"

namespace gantry {

class InterleavedPart final : public StepPart {
 public:
  explicit InterleavedPart(const StepCore& core) : core_(core) {}  // not owned

  StageOutput forward(ForwardCall& call, const NextForward& next) override;
  TensorDict model(ForwardCall& call, const NextTensors& next) override;
  TensorDict backward(BackwardCall& call, const NextTensors& next) override;
  // The last backward of a stage is not split, because in it parameters report one by one that they are
  // ready.
  bool offer(const BackwardCall& call) override;

 private:
  struct Partner {
    StageCall call;
    bool is_split;
    nn::WeightGradientStore* store;
  };
  void step_of_partner(ForwardCall& meanwhile);

  const StepCore& core_;
  std::map<std::pair<int, int>, std::shared_ptr<SplitBackward>> backwards_;  // by stage and microbatch
  std::optional<Partner> partner_;  // the backward that runs between the parts of a forward
};

}  // namespace gantry
