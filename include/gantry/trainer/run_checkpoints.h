// The checkpoints of a training run: where it resumes, when it saves, and what it notes beside the state.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gantry/checkpoint/writer.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

// What `gantry launch` started again (GANTRY_RESTART above 0) goes on from what it has saved, whatever it began from:
// the configuration with checkpoint.resume set to that. ConfigError without checkpoint.path.
Config resume_after_restart(Config config);

class HeldOutRecord;

class RunCheckpoints {
 public:
  // Takes the lock of checkpoint.path, if there is one. `before_print` is called before anything is printed. Collective
  // over the world, as every member but saves_at().
  RunCheckpoints(
      World& world, const Config& config, Plugin& plugin, std::function<void()> before_print = [] {});
  ~RunCheckpoints();

  // Loads what checkpoint.resume says into `boosted`, whose loader goes on with the first sample that was not seen yet
  // (whatever batch size and replicas there were and are), and returns the steps that were done before. Rank 0 chooses
  // for all, and says which checkpoint, why newer ones were passed over, and what the run has changed since.
  // CheckpointError for damage, another model, changes by which samples would be skipped or repeated (unless
  // checkpoint.allow_changes), and checkpoints of an earlier run that a restart would take for this one's, before
  // anything else happens. Where there is nothing to resume, the weights of checkpoint.load are loaded, if there is
  // one, and nothing else of it: 0 steps were done.
  std::int64_t resume(Boosted& boosted);
  // What the held-out losses were: saved with the checkpoints, and restored by resume(). With checkpoint.keep_best the
  // checkpoint of the best step stays.
  HeldOutRecord& held_out() { return *held_out_; }
  // Whether checkpoint.every says so.
  bool saves_at(std::int64_t step) const;
  // Saves, once a step, if there is a checkpoint.path. True where it did.
  bool save(std::int64_t step, Boosted& boosted);
  // Reports a save in the background that has failed.
  void check();
  // Waits for a save under way, and gives the folder of the last one, or "".
  std::string finish();

 private:
  std::optional<CompleteCheckpoint> choose() const;
  void load_weights_alone(Boosted& boosted);
  void seek_data(const CheckpointInfo& info, DataLoader& loader) const;
  void look_for_foreign_ones() const;
  void compare_with(const CheckpointInfo& info, const DataLoader& loader) const;
  void warn_of_threads(const CheckpointInfo& info) const;
  void warn(const std::string& line) const;

  World& world_;
  const Config& config_;
  Plugin& plugin_;
  std::function<void()> before_print_;
  DiskLimits disk_;
  std::unique_ptr<CheckpointWriter> writer_;  // null without checkpoint.path
  std::int64_t saved_step_ = -1;
  std::unique_ptr<HeldOutRecord> held_out_;
};

}  // namespace gantry
