// The checkpoints of a training run: where it resumes, when it saves, and what it notes beside the state.
#pragma once

#include <memory>
#include <string>

#include "gantry/checkpoint/writer.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"

namespace gantry::cli {

// What `gantry launch` started again (GANTRY_RESTART above 0) goes on from what it has saved, whatever it began from:
// the configuration with checkpoint.resume set to that. ConfigError without checkpoint.path.
Config resume_after_restart(Config config);

class RunCheckpoints {
 public:
  // Takes the lock of checkpoint.path, if there is one. Collective over the world, as every member.
  RunCheckpoints(World& world, const Config& config, HybridParallelPlugin& plugin);

  // Loads what checkpoint.resume says into `boosted`, whose loader goes on with the first sample that was not seen yet
  // (whatever batch size and replicas there were and are), and returns the steps that were done before; rank 0 says
  // which checkpoint, and why newer ones were passed over. CheckpointError for damage, another model, and checkpoints
  // of an earlier run that a restart would take for this one's, before anything else happens.
  std::int64_t resume(Boosted& boosted);
  // Saves where this step is one to save at, or is `last`; also reports a save in the background that has failed.
  void after_step(std::int64_t step, bool last, double lr, Boosted& boosted);
  // True on every rank if any rank's process was asked to stop. False without checkpoints.
  bool asked_to_stop();
  // Waits for a save under way, and gives the folder of the last one, or "".
  std::string finish();

 private:
  void seek_data(const CheckpointInfo& info, DataLoader& loader) const;
  void look_for_foreign_ones() const;
  void warn_of_changes(const CheckpointInfo& info) const;

  World& world_;
  const Config& config_;
  HybridParallelPlugin& plugin_;
  std::unique_ptr<CheckpointWriter> writer_;  // null without checkpoint.path
};

}  // namespace gantry::cli
