// One step on one rank in the form that the executor runs: the model's forward and the criterion for each
// microbatch. All further features of a step are parts around these computations (step/step_part.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gantry/nn/weight_gradient.h"
#include "gantry/pipeline/stage_runtime.h"
#include "gantry/plugins/step/step_core.h"
#include "gantry/plugins/step/step_part.h"
#include "gantry/plugins/step_end.h"

namespace gantry {

class PipelineStep final : public StageRuntime {
 public:
  struct Options {
    bool takes_losses = true;   // stages may add losses
    bool defers_logits = true;  // true if only the criterion reads the logits
    // Called with the outputs of the first microbatch on the ranks of the last stage, before the criterion.
    std::function<void(const TensorDict& outputs)> check_outputs = {};
    std::function<void(int stage, int microbatch)> before_backward = {};
  };

  // `core` must outlive the step.
  PipelineStep(StepCore& core, StepParts parts, Options options);

  StageOutput forward(int stage, int microbatch, TensorDict input) override;
  TensorDict backward(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                      const TensorDict& gradients) override;
  TensorDict backward_input(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                            const TensorDict& gradients) override;
  void backward_weight(int stage, int microbatch) override;
  void offer_backward(const schedule::Action& backward, const StageOutput& output,
                      const TensorDict& gradients) override;
  void run_vocabulary(schedule::ActionKind pass, int microbatch) override;
  void skip(schedule::ActionKind kind, int stage, int microbatch) override;
  void extra(const schedule::Action& action) override;
  std::string shape_key(int microbatch) const override { return shape_keys_[microbatch]; }
  bool needs_gradients() const override { return core_.settings.needs_gradients; }

  // After the last action. `done`: the step was not aborted.
  void finish(bool done);
  // After an exception.
  void give_up() noexcept;

  // True if a loss of this rank depends on a tensor that requires a gradient.
  bool has_graph() const { return has_graph_ || core_.losses.has_graph(); }
  // The sums of the losses of this rank's stages: scalars, on the device on which they were computed.
  StepLosses losses() const { return {.criterion = core_.losses.sums(), .added = added_}; }
  // The count of this rank's last stage; zero elsewhere. Waits for counts on a device.
  std::int64_t loss_count() const { return core_.losses.count(); }
  // The kept outputs, concatenated along dim 0 and gathered over tp and over the ranks that share sequences. Collective
  // over these on the ranks of the last stage.
  TensorDict outputs() const;

 private:
  template <class Call, class Function, class Last>
  auto through(Call& call, Function function, const Last& last, std::size_t part = 0) -> decltype(last());
  StageCall call_of(int stage, int microbatch) const;
  StageOutput compute(ForwardCall& call);
  TensorDict differentiate(BackwardCall call);
  nn::DeferredLogits deferrable_logits(const ForwardCall& call) const;
  torch::Tensor loss_of(ForwardCall& call, const TensorDict& outputs);
  std::optional<double> share_of(const Batch& microbatch) const;  // Forward::step_share
  void add_losses(const ForwardCall& call, StageOutput& output);
  bool ends_gradients(int stage);
  void announce(const StageCall& backward);

  StepCore& core_;
  StepParts parts_;
  Options options_;
  std::vector<std::string> shape_keys_;
  std::vector<std::shared_ptr<const nn::SequencePart>> sequences_;  // by microbatch; empty: full sequences
  std::map<std::string, std::vector<torch::Tensor>> added_;         // losses that stages added, by name
  std::map<std::pair<int, int>, nn::WeightGradientStore> stores_;   // by stage and microbatch
  std::map<int, std::size_t> backwards_done_;                       // by stage
  std::set<std::pair<int, int>> announced_;                         // backwards, by stage and microbatch
  bool has_graph_ = false;                                          // true if an added loss has a graph
};

}  // namespace gantry
