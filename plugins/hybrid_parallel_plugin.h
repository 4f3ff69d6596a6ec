// Tensor, pipeline and data parallelism together, as the configuration says.
#pragma once

#include <memory>

#include "gantry/plugins/pipeline_step.h"
#include "gantry/plugins/plugin.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry {

class HybridParallelPlugin final : public Plugin {
 public:
  // Collective over the world: makes the process groups.
  HybridParallelPlugin(World& world, Config config);
  ~HybridParallelPlugin() override;

  Boosted boost(BoostRequest request) override;
  StepResult execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) override;
  void set_no_sync(bool no_sync) override { no_sync_ = no_sync; }
  void sync_gradients(Boosted& boosted) override;
  StateSource& state(Boosted& boosted) override;

  // Compares replicas of parameters and gradients, as replica_audit.h says; after a step's sync. Collective over the
  // world.
  void audit(Boosted& boosted);

  // Has this rank read its replica's part of a further loader's batches, as boost does with its own: only where its
  // stages need the data. Collective over pp.
  void distribute(DataLoader& loader, const Boosted& boosted);

  const Config& config() const { return config_; }
  // How a boosted model's outputs are split over tp.
  const SplitOutputs& split_outputs(const Boosted& boosted);
  ProcessGroupMesh& mesh() { return mesh_; }
  const PipelineStageManager& stages() const { return stages_; }
  // Called for each action of a step with its times, until replaced. For timelines.
  void set_observer(schedule::Executor::Observer observer) { observer_ = std::move(observer); }
  // How many microbatches a step of so many samples a replica has.
  int microbatches(std::int64_t replica_samples) const {
    return schedules_.microbatches(stages_.num_stages(), replica_samples);
  }
  // The schedule of such a step, before lowering.
  schedule::Schedule schedule_for(std::int64_t replica_samples, bool forward_only) const;

 private:
  struct ModelState;
  ModelState& state_of(const Boosted& boosted);
  std::shared_ptr<BoostedOptimizer> boost_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer,
                                                    ModelState& state, std::vector<SharedGradient> shared);
  void agree_on_counts(Batch& batch, const Policy& policy);
  struct StepEnd {
    double counted = 0;
    bool given_up = false;
  };
  StepEnd agree_on_end(const ModelState& state, bool given_up);
  void finish_gradients(ModelState& state, Boosted& boosted, double counted);
  void give_up(ModelState& state, Boosted& boosted);
  void look_at_unused_gradients(ModelState& state, BoostedOptimizer& optimizer, bool removed);
  void look_at_first_step(ModelState& state, double counted);
  schedule::Executor& executor_for(int microbatches, bool forward_only);
  void check_batch(const Batch& batch) const;
  std::pair<double, double> read_loss(std::vector<torch::Tensor> losses, std::int64_t counted,
                                      BoostedOptimizer* synced);

  World& world_;
  Config config_;
  ProcessGroupMesh mesh_;
  ScheduleSource schedules_;
  PipelineStageManager stages_;
  StageLink link_;
  std::map<std::pair<int, bool>, schedule::Executor> executors_;  // by microbatches and forward_only
  std::vector<std::unique_ptr<ModelState>> models_;
  schedule::Executor::Observer observer_;
  bool no_sync_ = false;
};

}  // namespace gantry
