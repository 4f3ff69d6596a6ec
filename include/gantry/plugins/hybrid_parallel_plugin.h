// The plugin that combines tensor, context, expert, pipeline and data parallelism according to the configuration.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gantry/plugins/plugin.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry {

class PipelineStep;
class StageLink;
struct RowShards;
struct StepCounts;
struct StepEnd;
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
  std::shared_ptr<int> no_sync_guards(const Boosted* boosted) override;
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
  schedule::Schedule schedule_for(const Boosted& boosted, std::int64_t replica_samples, bool forward_only) override;
  void set_observer(ActionObserver observer) override;
  schedule::ForwardTimes forward_times() const override { return forward_times_; }

 private:
  struct ModelState;
  Boosted boost_model(const BoostRequest& request);
  bool chosen_vocabulary(ScheduleSource& schedules, const Policy& policy, const torch::nn::Module& model) const;
  StepResult run_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options);
  struct StepPlan;
  ModelState& state_of(const Boosted& boosted);
  StepResult run_step(ModelState& state, const Batch& batch, Boosted& boosted, const ExecuteOptions& options);
  StepPlan plan_call(ModelState& state, const Boosted& boosted, const Criterion& criterion, std::int64_t samples,
                     const ExecuteOptions& options);
  void complete_plan(StepPlan& plan, const ModelState& state, const StepCounts& counts, const Batch& batch) const;
  void begin_step(ModelState& state, const Boosted& boosted, const StepPlan& plan, const StepCounts& counts,
                  const ExecuteOptions& options);
  std::int64_t length_of_shards(const ModelState& state, const Batch& batch) const;
  PipelineStep make_step(ModelState& state, const Criterion& criterion, const Batch& batch, const StepPlan& plan,
                         const ExecuteOptions& options, const nn::RouterBalance& balance);
  nn::RouterBalance balance_of(const ModelState& state, const Criterion& criterion, const Batch& full,
                               const StepPlan& plan, const ExecuteOptions& options) const;
  bool run(PipelineStep& step, ModelState& state, const StepPlan& plan, const ExecuteOptions& options);
  bool end_step(ModelState& state, const StepPlan& plan, const ExecuteOptions& options, bool done);
  void finish_gradients(ModelState& state, const StepEnd& end);
  void audit_when_due(const ModelState& state, Boosted& boosted);
  void report_times();
  void shard_parameters(ModelState& state, const RowShards& rows);
  schedule::Executor& executor_for(ModelState& state, int microbatches, bool forward_only,
                                   std::optional<schedule::Gather> gather);

  World& world_;
  Config config_;
  std::shared_ptr<ProcessGroupMesh> mesh_owner_;  // boosted models own it too
  ProcessGroupMesh& mesh_;
  ScheduleSource schedules_;  // for models whose stages compute embedding and head
  PipelineStageManager stages_;
  std::unique_ptr<StageLink> link_;
  std::unique_ptr<ProcessGroup> layer_group_;  // the ranks that compute layers together; null: those of tp
  std::vector<std::shared_ptr<ModelState>> models_;
  ActionObserver observer_;
  std::unique_ptr<schedule::ActionTimes> times_;                    // null without an observer
  schedule::ForwardTimes forward_times_;                            // times of the last training step with an observer
  std::shared_ptr<int> no_sync_guards_ = std::make_shared<int>(0);  // for all models
};

}  // namespace gantry
