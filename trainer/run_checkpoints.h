// The checkpoints of a training run: where it resumes, when it saves, and what it notes beside the state.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gantry/checkpoint/writer.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"

namespace gantry {

// What `gantry launch` started again (GANTRY_RESTART above 0) goes on from what it has saved, whatever it began from:
// the configuration with checkpoint.resume set to that. ConfigError without checkpoint.path.
Config resume_after_restart(Config config);

class RunCheckpoints {
 public:
  // Takes the lock of checkpoint.path, if there is one. `before_print` is called before anything is printed. Collective
  // over the world, as every member but saves_at() and stops().
  RunCheckpoints(World& world, const Config& config, HybridParallelPlugin& plugin, std::function<void()> before_print);

  // Loads what checkpoint.resume says into `boosted`, whose loader goes on with the first sample that was not seen yet
  // (whatever batch size and replicas there were and are), and returns the steps that were done before. Rank 0 chooses
  // for all, and says which checkpoint, why newer ones were passed over, and what the run has changed since.
  // CheckpointError for damage, another model, changes by which samples would be skipped or repeated (unless
  // checkpoint.allow_changes), and checkpoints of an earlier run that a restart would take for this one's, before
  // anything else happens.
  std::int64_t resume(Boosted& boosted);
  // Whether checkpoint.every says so.
  bool saves_at(std::int64_t step) const;
  // Saves, once a step, if there is a checkpoint.path.
  void save(std::int64_t step, double lr, Boosted& boosted);
  // True on every rank if any rank's process was asked to stop. False without checkpoints. Also reports a save in the
  // background that has failed.
  bool asked_to_stop();
  // For ExecuteOptions: does this rank want to stop? Empty without checkpoints, and where the others could not hear of
  // it within a step: a job of several processes without signs of life (comm.heartbeat_seconds 0).
  std::function<bool()> stops() const;
  // As asked_to_stop(), of this rank's tp group alone. Collective over tp.
  bool stage_asked_to_stop();
  // Waits for a save under way, and gives the folder of the last one, or "".
  std::string finish();

 private:
  std::optional<CompleteCheckpoint> choose() const;
  void seek_data(const CheckpointInfo& info, DataLoader& loader) const;
  void look_for_foreign_ones() const;
  void compare_with(const CheckpointInfo& info, const DataLoader& loader) const;
  void warn_of_threads(const CheckpointInfo& info) const;
  void warn(const std::string& line) const;

  World& world_;
  const Config& config_;
  HybridParallelPlugin& plugin_;
  std::function<void()> before_print_;
  DiskLimits disk_;
  std::unique_ptr<CheckpointWriter> writer_;  // null without checkpoint.path
  std::int64_t saved_step_ = -1;
};

}  // namespace gantry
