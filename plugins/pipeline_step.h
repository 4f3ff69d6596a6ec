// One step's work on one rank: the microbatches, the loss and the outputs. What the executor runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/router_balance.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/pipeline/executor.h"
#include "gantry/plugins/gathered_stages.h"
#include "gantry/plugins/microbatch_losses.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/plugins/split_backward.h"
#include "gantry/plugins/stage_graphs.h"
#include "gantry/plugins/step_end.h"
#include "gantry/plugins/step_offload.h"
#include "gantry/plugins/vocabulary_passes.h"
#include "gantry/policies/sharder.h"
#include "gantry/schedule/measured.h"
#include "gantry/tensors/batch.h"

namespace gantry {

class PipelineStep final : public StageRuntime {
 public:
  struct Options {
    double seed_gradient = 1;  // of the loss's sum
    RandomContext random;      // first_sample is that of the batch
    bool needs_gradients = true;
    bool keep_outputs = false;
    Recomputation recomputation = Recomputation::kNone;
    GradientBuffers* gradients = nullptr;  // notified of ready gradients, if no more follow before the sync; not owned
    GradientBuffers* scattered = nullptr;  // scattered after each backward, if not null; not owned
    GradientBuffers* values = nullptr;     // whose values a stage waits for before its forward; not owned
    std::shared_ptr<GatheredStages> gathered;  // if parameters are sharded over replicas
    std::vector<int> recomputed_layers;        // as StageContext::Settings has them
    schedule::ForwardTimes* times = nullptr;   // what forwards take is added there, where not null; not owned
    nn::OutputObserver* observer = nullptr;    // receives the outputs of modules; not owned
    bool takes_losses = true;                  // stages may add some
    bool is_full = true;  // this step's one microbatch is the whole global batch, so that any mean is right
    const nn::RouterBalance* balance = nullptr;  // what routers add to the loss; not owned, null: nothing
    nn::RouterChoices* choices = nullptr;        // where they count; not owned, null: nowhere
    const SequenceParts* parts = nullptr;  // where ranks share sequences, of which the batch is this one's; not owned
    StepOffload* offload = nullptr;        // where something waits on the host; not owned
    int tensor_pieces = 1;                 // as a Forward has them
    bool interleaves = false;              // the parts of overlapped pairs run in turn; not with `gathered`, `offload`
    StageGraphs* graphs = nullptr;         // what was recorded is replayed, and recorded; not owned, null: nothing is
    std::set<std::pair<int, int>> split_backwards = {};  // with `graphs`: stages and microbatches that have one
    VocabularyPasses* vocabulary = nullptr;  // where embedding and head are computed outside of the stages; not owned
    // Called with the first microbatch's outputs on the ranks of the last stage, before the criterion.
    std::function<void(const TensorDict& outputs)> check_outputs = {};
    std::function<void(int stage, int microbatch)> before_backward = {};
  };

  PipelineStep(const StageModule& model, Criterion criterion, const SplitOutputs& split,
               std::vector<Batch> microbatches, Options options);

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
  bool needs_gradients() const override { return options_.needs_gradients; }

  const std::vector<Batch>& microbatches() const { return microbatches_; }
  // A loss on this rank depends on something that requires a gradient.
  bool has_graph() const { return has_graph_ || losses_.has_graph() || options_.vocabulary != nullptr; }
  void set_vocabulary(VocabularyPasses* passes) { options_.vocabulary = passes; }
  // What is left to be computed after the last action: losses of passes that no backward follows.
  void finish();
  // The sums of losses that this rank's stages made, where they were computed: scalars to be read back.
  StepLosses losses() const;
  // What this rank's last stage has counted; zero elsewhere. What a criterion has counted on a device is read back.
  std::int64_t loss_count() const { return losses_.count(); }
  // The kept outputs, concatenated along dim 0 and gathered over tp and over the ranks that share sequences. Collective
  // over these on the ranks of the last stage.
  TensorDict outputs() const;

 private:
  StageOutput compute(int stage, int microbatch, const TensorDict& input, ForwardReport& report);
  template <class Run>
  auto named(const char* what, int stage, int microbatch, const TensorDict& given, const ForwardReport& report,
             Run run) const;
  std::string place_of(int stage, const ForwardReport& report) const;
  // Runs a computation of a stage with its parameters gathered.
  template <class Run>
  auto gathered(int stage, GatheredStages::Kind kind, bool is_last, Run run) const;
  // True where the stage's gradients are unsharded once this microbatch's are added.
  bool is_last_backward(int stage);
  StageOutput timed_compute(int stage, int microbatch, const TensorDict& input, ForwardReport& report);
  TensorDict output_gradients(int stage, int microbatch, const TensorDict& given);
  TensorDict differentiate(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                           const TensorDict& gradients);
  void announce_backward(int stage, int microbatch) const;
  void step_of_partner();
  // Of work that is recorded, in pipeline_step_recorded.cpp.
  StageRecording* take_recording(int stage, int microbatch, const TensorDict& input);
  StageRecording* recording_of(int stage, int microbatch) const;
  StageRecording::Made compute_recorded(int stage, int microbatch, const TensorDict& batch, const TensorDict& input,
                                        nn::WeightGradientStore& weight_gradients);
  StageOutput replay_forward(StageRecording& recording, int stage, int microbatch, const TensorDict& input);
  TensorDict replay_backward(int stage, int microbatch, const TensorDict& gradients, bool is_split);
  void end_recorded(int stage, int microbatch);
  nn::DeferredLogits deferrable_logits(int stage, int microbatch) const;
  torch::Tensor record_loss(int microbatch, const TensorDict& outputs, const nn::DeferredLogits& logits);

  const StageModule& model_;
  const SplitOutputs& split_;
  std::vector<Batch> microbatches_;
  std::vector<std::string> shape_keys_;
  std::vector<std::shared_ptr<const nn::SequencePart>> sequences_;  // by microbatch; empty: all of each
  Options options_;
  MicrobatchLosses losses_;
  std::map<std::string, std::vector<torch::Tensor>> added_;  // losses that stages added, by name
  std::vector<TensorDict> outputs_;
  std::map<std::pair<int, int>, nn::WeightGradientStore> stores_;         // by stage and microbatch
  std::map<std::pair<int, int>, StageRecording*> recordings_;             // likewise, of those that are replayed
  std::map<int, std::size_t> backwards_done_;                             // by stage
  std::map<std::pair<int, int>, std::shared_ptr<SplitBackward>> splits_;  // likewise, where pairs run in turn
  std::optional<schedule::Action> partner_;  // the backward that runs between a forward's parts
  bool has_graph_ = false;                   // an added loss has one
  double partner_seconds_ = 0;               // that it has taken there
};

}  // namespace gantry
