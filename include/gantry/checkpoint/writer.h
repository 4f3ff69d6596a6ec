// Saving, step after step, by one job: at once, or in the background while training goes on.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "gantry/checkpoint/checkpoint.h"

namespace gantry {

class CheckpointFolder;

struct WriterOptions {
  // Saves return when the state is copied; at most one is under way. The copy's memory is kept for the next one.
  bool async = false;
  FileSystem* files = nullptr;  // not owned; null: the system's
  DiskLimits disk;              // how long ranks wait for each other's disks
  // Called on rank 0, by the thread that calls the writer, with what could not be removed: older checkpoints that keep
  // their space. Empty: it is printed on stderr.
  std::function<void(const std::string& line)> warn;
};

// One rank's part in it. Every member but check() is collective over the world. A failed save throws on the rank that
// failed: ResourceError where it can't be written; the former checkpoints stand.
class CheckpointWriter {
 public:
  // Takes the directory's lock, for this object's life, and clears up what an earlier job left unfinished.
  CheckpointWriter(const std::string& directory, const ProcessGroupMesh& mesh, const WriterOptions& options = {});
  // Waits for this rank's writing, and gives a commit up that waits for others.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Finishes the save before, then starts this one. `request.directory` is not looked at.
  void save(const SaveRequest& request, StateSource& state);
  // Waits until the save under way is committed. Throws what failed.
  void finish();
  // Throws if this rank's writing has failed by now. Not collective.
  void check();
  // The folder of the last finished save, or "".
  const std::string& last() const { return last_; }

 private:
  struct Job;
  void on_disk(const std::function<void()>& work);
  void write_at_once(const std::shared_ptr<Job>& job);
  void write_in_background(const std::shared_ptr<Job>& job);
  void pass_on_warnings();

  const ProcessGroupMesh& mesh_;
  WriterOptions options_;
  DiskProgress progress_;
  WatchedFiles files_;
  std::string directory_;
  std::unique_ptr<CheckpointFolder> folder_;  // on rank 0
  std::thread thread_;
  std::shared_ptr<Job> job_;  // under way in the background
  std::atomic<bool> stop_{false};
  std::string last_;
  TensorDict buffers_;  // the copies of the save before
};

}  // namespace gantry
