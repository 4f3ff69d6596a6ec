// The plugin that combines tensor, context, expert, pipeline and data parallelism according to its options.
#pragma once

#include <memory>
#include <vector>

#include "gantry/plugins/parallel_options.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

struct ModelState;
struct PluginContext;

// For the contracts of the functions, see Plugin.
class HybridParallelPlugin final : public Plugin {
 public:
  // Creates the process groups. Throws ConfigError like check(). Collective over the world.
  HybridParallelPlugin(World& world, ParallelOptions options);
  // The same with the options of a configuration. The first training step throws ConfigError if the file sets a key
  // that the program does not use; see core/used_keys.h.
  HybridParallelPlugin(World& world, const Config& config);
  ~HybridParallelPlugin() override;

  Boosted boost(BoostRequest request) override;
  StepResult execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) override;
  std::shared_ptr<int> no_sync_guards(const Boosted* boosted) override;
  void sync_gradients(Boosted& boosted) override;
  StateSource& state(Boosted& boosted) override;
  void audit(Boosted& boosted) override;
  void distribute(DataLoader& loader, const Boosted& boosted) override;

  const ParallelOptions& options() const override;
  ProcessGroupMesh& mesh() override;
  const PipelineStageManager& stages() const override;
  const SplitOutputs& split_outputs(const Boosted& boosted) override;
  const SequenceParts* sequence_parts(const Boosted& boosted) override;
  int microbatches(std::int64_t replica_samples) const override;
  schedule::Schedule schedule_for(const Boosted& boosted, std::int64_t replica_samples, bool forward_only) override;
  void set_observer(ActionObserver observer) override;
  schedule::ForwardTimes forward_times() const override;

 private:
  ModelState& state_of(const Boosted& boosted);

  std::shared_ptr<PluginContext> context_;
  std::vector<std::shared_ptr<ModelState>> models_;
};

}  // namespace gantry
