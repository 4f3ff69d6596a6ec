// Stages whose work is captured once and replayed (stage_graphs.h).
#pragma once

#include <map>
#include <set>
#include <utility>

#include "gantry/plugins/stage_graphs.h"
#include "gantry/plugins/step/step_part.h"

namespace gantry {

class RecordedPart final : public StepPart {
 public:
  // `split_backwards`: stages and microbatches for which the gradients of parameters are computed in a
  // separate pass. `checks_outputs`: the outputs of the last stage are checked, so it runs without a graph.
  // Owns no argument.
  RecordedPart(StageGraphs& graphs, StepCore& core, std::set<std::pair<int, int>> split_backwards, bool checks_outputs)
      : graphs_(graphs), core_(core), split_backwards_(std::move(split_backwards)), checks_outputs_(checks_outputs) {
    graphs_.begin();
  }

  StageOutput forward(ForwardCall& call, const NextForward& next) override;
  TensorDict backward(BackwardCall& call, const NextTensors& next) override;
  void weights(WeightsCall& call, const Next& next) override;

 private:
  StageRecording* take(const ForwardCall& call);
  StageRecording* recording_of(const StageCall& call) const;
  void end(const StageCall& call);
  StageRecording::Made compute(const StageCall& call, const TensorDict& batch, const TensorDict& input,
                               nn::WeightGradientStore& weight_gradients);

  StageGraphs& graphs_;
  StepCore& core_;
  std::set<std::pair<int, int>> split_backwards_;
  bool checks_outputs_;
  std::map<std::pair<int, int>, StageRecording*> recordings_;  // recordings in use, by stage and microbatch
};

}  // namespace gantry
