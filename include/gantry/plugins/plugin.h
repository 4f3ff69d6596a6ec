// The interface of plugins. A plugin parallelizes an ordinary model and optimizer and runs their training steps.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/expert_load.h"
#include "gantry/core/registry.h"
#include "gantry/nn/output_observer.h"
#include "gantry/plugins/boosted.h"
#include "gantry/plugins/criterion.h"
#include "gantry/plugins/parallel_options.h"
#include "gantry/schedule/measured.h"
#include "gantry/schedule/schedule.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Options of execute_pipeline().
struct ExecuteOptions {
  // Return the loss on the ranks of the last stage.
  bool return_loss = true;
  bool return_outputs = false;
  bool broadcast_loss = false;  // return the loss on all ranks, not only on those of the last stage
  // Number of counted tokens of all replicas in all calls until the next optimizer step: their common denominator. 0:
  // it is determined at the sync. With no_sync, every call must pass the same number if stages add losses. The sync
  // throws UsageError if a different number of tokens was counted.
  std::int64_t step_tokens = 0;
  // The same for samples, by which router losses of balance `sequence` are divided.
  std::int64_t step_samples = 0;
  bool forward_only = false;  // evaluation: no gradients and no dropout; implied without an optimizer
  // Returns true if this rank wants to abort the step; called before each forward and backward of a microbatch. Set it
  // on all ranks or on none; its results may differ. If any rank returns true, all ranks abort the step. Ranks of the
  // same pipeline and tp group stop at once. Other replicas stop when their own callback returns true, at the latest at
  // the end of the step.
  std::function<bool()> stops = {};
  // Called before each backward pass that this rank runs, once per stage and microbatch (counted from 0).
  std::function<void(int stage, int microbatch)> before_backward = {};
  // Receives the outputs of modules (nn/output_observer.h). Not owned; null: none.
  nn::OutputObserver* observer = nullptr;
  // The criterion of this call; empty: Boosted::criterion. A criterion that needs full outputs gets them gathered over
  // tp. With context parallelism it must be a sum over tokens, as boost() requires, and with parallel.vocabulary:
  // pipeline a cross entropy; otherwise the call throws ConfigError.
  Criterion criterion = {};
};

// The result of execute_pipeline().
struct StepResult {
  std::optional<double> loss;                  // mean over all counted tokens of the global batch
  std::map<std::string, double> added_losses;  // name -> part of the loss that stages added with add_loss()
  std::int64_t tokens = 0;                     // number of counted tokens of the global batch; set if `loss` is set
  std::int64_t images = 0;                     // number of images of the global batch, by its pixel_values
  ExpertLoads experts = {};  // expert loads of the step whose gradients this call synced; set if `loss` is set
  TensorDict outputs;        // full outputs for this replica's samples, on the ranks of the last stage
  // True on all ranks if the step was aborted. There are no loss and no outputs, and all gradients since the last
  // optimizer step are zero: weights, optimizer and random state are as after that step.
  bool aborted = false;
};

class SequenceParts;

// A way to parallelize models. Use it through Booster. All functions that take a Boosted require one that this plugin
// has boosted.
class Plugin {
 public:
  virtual ~Plugin() = default;

  // Shards the model, and adapts the optimizer, criterion, loader and learning-rate schedule to it. Collective over the
  // world.
  virtual Boosted boost(BoostRequest request) = 0;
  // Runs forward and backward of a batch through the pipeline, and syncs the gradients unless no_sync_guards() is above
  // 0. If it throws, the gradients since the last optimizer step are dropped, and the next call starts with zero
  // gradients. Collective over the world.
  virtual StepResult execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) = 0;
  // Returns the number of guards (Booster::NoSync) during which execute_pipeline() accumulates this model's gradients
  // without reducing them. `boosted` null: those for all models. Guards change it.
  virtual std::shared_ptr<int> no_sync_guards(const Boosted* boosted) = 0;
  // Reduces the gradients that were accumulated without a sync, or those that the backward() calls of a custom loop
  // (Loop::kOwn) have added since zero_grad(). In a custom loop, each replica's gradients are those of the mean over
  // its samples; the result is the mean over the replicas. With float16, multiply the loss by
  // boosted.optimizer->loss_scale() before backward(). Throws UsageError if the gradients of the last sync were not
  // zeroed. Collective over the world.
  virtual void sync_gradients(Boosted& boosted) = 0;
  // The state that a checkpoint contains.
  virtual StateSource& state(Boosted& boosted) = 0;
  // Compares the replicas of parameters and gradients bitwise; throws NumericalError if they differ. Call it after a
  // step's sync. Collective over the world.
  virtual void audit(Boosted& boosted) = 0;
  // Makes this rank read its replica's part of the batches of another loader, as boost() does for its own: ranks whose
  // stages do not need the data do not read it. Collective over pp.
  virtual void distribute(DataLoader& loader, const Boosted& boosted) = 0;

  virtual const ParallelOptions& options() const = 0;
  virtual ProcessGroupMesh& mesh() = 0;
  virtual const PipelineStageManager& stages() const = 0;
  // How the outputs of a boosted model are sharded over tp.
  virtual const SplitOutputs& split_outputs(const Boosted& boosted) = 0;
  // How the ranks of a boosted model share sequences along cp; null if cp is 1.
  virtual const SequenceParts* sequence_parts(const Boosted& boosted) = 0;
  // The number of microbatches of a step with `replica_samples` samples per replica, and the schedule of a boosted
  // model for it, before lowering.
  virtual int microbatches(std::int64_t replica_samples) const = 0;
  virtual schedule::Schedule schedule_for(const Boosted& boosted, std::int64_t replica_samples, bool forward_only) = 0;
  // Sets a function that is called at the end of each training step, after the sync, for each action of this rank with
  // its start and end time in seconds. Stays until replaced. For timelines.
  using ActionObserver = std::function<void(const schedule::Action& action, double start, double end)>;
  virtual void set_observer(ActionObserver observer) = 0;
  // The forward times of this rank in the last training step that had an observer. Empty if the host cannot measure the
  // time of device work.
  virtual schedule::ForwardTimes forward_times() const { return {}; }
};

using PluginFactory = std::function<std::unique_ptr<Plugin>(World&, const Config&)>;
// The registry of plugins. "hybrid_parallel" is always registered.
Registry<PluginFactory>& plugins();

}  // namespace gantry
