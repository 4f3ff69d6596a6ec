// The checkpoints of a training run: where it resumes, when it saves, and the additional state that it records.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gantry/checkpoint/writer.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

// Returns the configuration for a job that `gantry launch` has restarted (GANTRY_RESTART above 0): with
// checkpoint.resume set to its own checkpoints. Throws ConfigError without checkpoint.path.
Config resume_after_restart(Config config);

class HeldOutRecord;
struct SampledContent;

class RunCheckpoints {
 public:
  // Acquires the lock of checkpoint.path, if it is set. `before_print` is called before anything is printed. All
  // members except saves_at() are collective over the world.
  RunCheckpoints(
      World& world, const Config& config, Plugin& plugin, std::function<void()> before_print = [] {});
  ~RunCheckpoints();

  // Loads the checkpoint that checkpoint.resume selects into `boosted`, and returns the number of completed steps. The
  // loader continues with the first sample that was not used yet, for any batch size and number of replicas; streams
  // continue at their states, if there are as many as before. Rank 0
  // selects the checkpoint for all ranks. It prints the selection, why newer ones were skipped, and which settings have
  // changed since.
  // Throws CheckpointError, before anything is changed, if the checkpoint is damaged or of another model. It also
  // throws if samples would be skipped or repeated (unless checkpoint.allow_changes is set), or if the directory
  // contains checkpoints of an earlier run that a restart would mistake for its own. If there is nothing to resume,
  // loads only the weights of checkpoint.load, if it is set, and returns 0.
  std::int64_t resume(Boosted& boosted);
  // In place of resume() for a run whose state does not come from a checkpoint. `companions`: those of the earlier part
  // of the run. Collective over the world.
  void continue_run(std::string companions);
  const std::string& companions() const { return companions_; }
  // Returns the time at which the run began, in seconds since 1970: that of the checkpoint from which resume() will
  // continue, else now. The same on all ranks.
  std::int64_t first_start() const;
  // The record of held-out losses. It is saved with the checkpoints and restored by resume(). With
  // checkpoint.keep_best, the checkpoint of the best step is kept.
  HeldOutRecord& held_out() { return *held_out_; }
  // True if a checkpoint is due after this step, by checkpoint.every.
  bool saves_at(std::int64_t step) const;
  // Saves a checkpoint if checkpoint.path is set, at most once per step. Returns true if it did.
  bool save(std::int64_t step, Boosted& boosted);
  // Throws the error of a background save that failed.
  void check();
  // Waits for a save in progress. Returns the directory of the last checkpoint, or "" if there is none.
  std::string finish();

 private:
  std::optional<CompleteCheckpoint> choose() const;
  void load_weights_alone(Boosted& boosted);
  void seek_data(const CheckpointInfo& info, DataLoader& loader) const;
  void seek_streams(const CheckpointInfo& info, DataLoader& loader) const;
  nlohmann::json data_progress(const DataLoader& loader) const;
  void look_for_foreign_ones() const;
  // Samples the data of this run. Returns true if they begin with those that the checkpoint's run had. Collective.
  bool sample_data(const CheckpointInfo& info);
  void compare_with(const CheckpointInfo& info, const DataLoader& loader, bool begins_as_before) const;
  void warn_of_rates(const CheckpointInfo& info) const;
  void warn_of_threads(const CheckpointInfo& info) const;
  void warn(const std::string& line) const;

  World& world_;
  const Config& config_;
  Plugin& plugin_;
  std::function<void()> before_print_;
  DiskLimits disk_;
  std::unique_ptr<CheckpointWriter> writer_;        // null without checkpoint.path
  std::vector<SampledContent> contents_;            // content of the data; empty: unknown
  std::vector<SampledContent> tokenizer_contents_;  // the same of its tokenizer's files
  std::int64_t saved_step_ = -1;
  std::string companions_;  // directory of the files besides the weights of the checkpoint that was loaded
  std::unique_ptr<HeldOutRecord> held_out_;
};

}  // namespace gantry
