// The plugin that combines tensor, context, expert, pipeline and data parallelism according to the configuration.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gantry/plugins/plugin.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry {

class PipelineStep;
class StageLink;
struct RowShards;
namespace nn {
struct RouterBalance;
}
namespace schedule {
enum class Gather;
class ActionTimes;
class Executor;
}  // namespace schedule

// For the contracts of the functions, see Plugin.
class HybridParallelPlugin final : public Plugin {
 public:
  // Creates the process groups. Collective over the world.
  HybridParallelPlugin(World& world, Config config);
  ~HybridParallelPlugin() override;

  Boosted boost(BoostRequest request) override;
  StepResult execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) override;
  void set_no_sync(bool no_sync, const Boosted* boosted) override;
  void sync_gradients(Boosted& boosted) override;
  StateSource& state(Boosted& boosted) override;
  void audit(Boosted& boosted) override;
  void distribute(DataLoader& loader, const Boosted& boosted) override;

  const Config& config() const override { return config_; }
  ProcessGroupMesh& mesh() override { return mesh_; }
  const PipelineStageManager& stages() const override { return stages_; }
  const SplitOutputs& split_outputs(const Boosted& boosted) override;
  const SequenceParts* sequence_parts(const Boosted& boosted) override;
  int microbatches(std::int64_t replica_samples) const override {
    return schedules_.microbatches(stages_.num_stages(), replica_samples);
  }
  schedule::Schedule schedule_for(std::int64_t replica_samples, bool forward_only) const override;
  void set_observer(ActionObserver observer) override;
  schedule::ForwardTimes forward_times() const override { return forward_times_; }

 private:
  struct ModelState;
  Boosted boost_model(const BoostRequest& request);
  bool chosen_vocabulary(const Policy& policy, const torch::nn::Module& model);
  StepResult run_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options);
  struct StepPlan;
  ModelState& state_of(const Boosted& boosted);
  StepPlan begin_step(ModelState& state, const Boosted& boosted, const Batch& batch, const ExecuteOptions& options);
  std::int64_t length_of_shards(const ModelState& state, const Batch& batch) const;
  PipelineStep make_step(ModelState& state, const Boosted& boosted, const Batch& batch, const StepPlan& plan,
                         const ExecuteOptions& options, const nn::RouterBalance& balance);
  nn::RouterBalance balance_of(const ModelState& state, const Boosted& boosted, const Batch& whole,
                               const StepPlan& plan, const ExecuteOptions& options) const;
  bool run(PipelineStep& step, const ModelState& state, const StepPlan& plan, const ExecuteOptions& options);
  bool end_step(ModelState& state, const StepPlan& plan, const ExecuteOptions& options, bool done);
  void finish_gradients(ModelState& state, double counted);
  void audit_when_due(const ModelState& state, Boosted& boosted);
  void report_times();
  void shard_parameters(ModelState& state, const RowShards& rows);
  schedule::Executor& executor_for(int microbatches, bool forward_only, std::optional<schedule::Gather> gather);

  World& world_;
  Config config_;
  ProcessGroupMesh mesh_;
  ScheduleSource schedules_;
  PipelineStageManager stages_;
  std::unique_ptr<StageLink> link_;
  std::unique_ptr<ProcessGroup> layer_group_;  // the ranks that compute layers together; null: those of tp
  // Key: number of microbatches, forward_only, and when sharded parameters are gathered.
  std::map<std::tuple<int, bool, std::optional<schedule::Gather>>, std::unique_ptr<schedule::Executor>> executors_;
  std::vector<std::unique_ptr<ModelState>> models_;
  ActionObserver observer_;
  std::unique_ptr<schedule::ActionTimes> times_;  // null without an observer
  schedule::ForwardTimes forward_times_;          // times of the last training step with an observer
  bool no_sync_ = false;                          // for all models
};

}  // namespace gantry
