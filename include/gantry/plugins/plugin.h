// A plugin turns an ordinary model and optimizer into boosted ones and runs their steps.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include <torch/torch.h>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/expert_load.h"
#include "gantry/core/registry.h"
#include "gantry/nn/output_observer.h"
#include "gantry/plugins/boosted.h"
#include "gantry/plugins/criterion.h"
#include "gantry/schedule/measured.h"
#include "gantry/schedule/schedule.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

struct ExecuteOptions {
  bool return_loss = true;
  bool return_outputs = false;
  bool broadcast_loss = false;  // the loss on all ranks, not only on those of the last stage
  // Counted tokens of all replicas in all calls until the next optimizer step, their one denominator; 0: it is found
  // out at the sync. Calls that add to each other's gradients (no_sync) have to say it where stages add losses, each
  // the same. UsageError at the sync where another number was counted.
  std::int64_t step_tokens = 0;
  // Likewise their samples, which routers' losses a sequence are divided by.
  std::int64_t step_samples = 0;
  bool forward_only = false;  // evaluation: no gradients, no dropout; so too when nothing was boosted to optimize
  // Asked before each forward and backward of a microbatch: does this rank want to stop? Ranks may answer differently.
  // Given on all ranks or on none. Where one says yes, the step is given up: its pipeline and its tp ranks compute
  // nothing more, and all others once they say yes too, or at the step's end.
  std::function<bool()> stops = {};
  nn::OutputObserver* observer = nullptr;  // told what modules compute (nn/output_observer.h); not owned
};

struct StepResult {
  std::optional<double> loss;                  // mean over every counted token of the global batch
  std::map<std::string, double> added_losses;  // the parts of the loss that stages added (add_loss), by their names
  std::int64_t tokens = 0;                     // counted in the global batch; known where the loss is
  ExpertLoads experts = {};                    // of the step whose gradients this call has synced; likewise
  TensorDict outputs;                          // of this replica's samples, whole, on the ranks of the last stage
  // The same on all ranks: the step was given up. There is no loss and no output, and all gradients since the last
  // optimizer step are zero: weights, optimizer and randomness are as after that.
  bool aborted = false;
};

class SequenceParts;

class Plugin {
 public:
  virtual ~Plugin() = default;

  // Splits the model, and fits the optimizer, criterion, loader and learning-rate schedule to it. Collective over the
  // world.
  virtual Boosted boost(BoostRequest request) = 0;
  // One forward and backward of a batch through the pipeline; syncs gradients unless within no_sync. Collective over
  // the world.
  virtual StepResult execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) = 0;
  // While true, execute_pipeline adds to this model's unreduced sums and leaves them; null for all models.
  virtual void set_no_sync(bool no_sync, const Boosted* boosted) = 0;
  // Reduces what no_sync left, or what the backwards of a loop of one's own (Loop::kOwn) have added since zero_grad():
  // each replica's gradients are then of the mean over its samples, and become the mean over the replicas. With float16
  // the loss is multiplied by boosted.optimizer->loss_scale() before its backward. UsageError where the last sums were
  // not zeroed. Collective over the world.
  virtual void sync_gradients(Boosted& boosted) = 0;
  // What a checkpoint has to hold.
  virtual StateSource& state(Boosted& boosted) = 0;
  // Compares replicas of parameters and gradients, as replica_audit.h says; after a step's sync. Collective over the
  // world.
  virtual void audit(Boosted& boosted) = 0;
  // Has this rank read its replica's part of a further loader's batches, as boost does with its own: only where its
  // stages need the data. Collective over pp.
  virtual void distribute(DataLoader& loader, const Boosted& boosted) = 0;

  virtual const Config& config() const = 0;
  virtual ProcessGroupMesh& mesh() = 0;
  virtual const PipelineStageManager& stages() const = 0;
  // How a boosted model's outputs are split over tp.
  virtual const SplitOutputs& split_outputs(const Boosted& boosted) = 0;
  // How its ranks along cp share sequences; null: there is one.
  virtual const SequenceParts* sequence_parts(const Boosted& boosted) = 0;
  // How many microbatches a step of so many samples per replica has, and its schedule, before lowering.
  virtual int microbatches(std::int64_t replica_samples) const = 0;
  virtual schedule::Schedule schedule_for(std::int64_t replica_samples, bool forward_only) const = 0;
  // Called at the end of each training step, when its gradients are synced, for each of its actions with its times
  // (pipeline/action_times.h), until replaced. For timelines.
  using ActionObserver = std::function<void(const schedule::Action& action, double start, double end)>;
  virtual void set_observer(ActionObserver observer) = 0;
  // Of the last training step while there was an observer, this rank's part; no layers where the host can't see what a
  // device takes.
  virtual schedule::ForwardTimes forward_times() const { return {}; }
};

using PluginFactory = std::function<std::unique_ptr<Plugin>(World&, const Config&)>;
// The registry; "hybrid_parallel" is in it from the start.
Registry<PluginFactory>& plugins();

}  // namespace gantry
