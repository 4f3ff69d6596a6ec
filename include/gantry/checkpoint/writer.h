// Saves the checkpoints of one job: synchronously, or in the background while training continues.
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
struct CompanionFiles;

struct WriterOptions {
  // save() returns when the state is copied; at most one save is in progress. The memory of the copy is reused by the
  // next save.
  bool async = false;
  FileSystem* files = nullptr;  // not owned; null: the system's
  double lock_seconds = 0;      // time to wait for the lock of the directory, which a lost rank may still hold
  DiskLimits disk;              // limits for waiting for the disks of other ranks
  // Called on rank 0, on the thread that calls the writer, if an older checkpoint could not be removed and still
  // occupies disk space. Empty: printed to stderr.
  std::function<void(const std::string& line)> warn;
};

// One rank's part of the writer. All members except check() are collective over the world. A failed save throws on the
// rank that failed: ResourceError if it cannot be written. Earlier checkpoints are then unchanged.
class CheckpointWriter {
 public:
  // Holds the lock of the directory during its lifetime, and removes unfinished files of an earlier job.
  CheckpointWriter(const std::string& directory, const ProcessGroupMesh& mesh, const WriterOptions& options = {});
  // Waits until this rank has written, and aborts a commit that waits for other ranks.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Finishes the previous save, then starts this one. `request.directory` is ignored.
  void save(const SaveRequest& request, StateSource& state);
  // Waits until the save in progress is committed. Throws its error.
  void finish();
  // Throws if this rank's background save has failed. Not collective.
  void check();
  // The directory of the last finished save, or "".
  const std::string& last() const { return last_; }

 private:
  struct Job;
  void on_disk(const std::function<void()>& work);
  void write_at_once(const std::shared_ptr<Job>& job);
  void write_in_background(const std::shared_ptr<Job>& job);
  std::shared_ptr<const CompanionFiles> companions_of(const std::string& model_directory);
  void pass_on_warnings();

  const ProcessGroupMesh& mesh_;
  WriterOptions options_;
  DiskProgress progress_;
  WatchedFiles files_;
  std::string directory_;
  std::unique_ptr<CheckpointFolder> folder_;          // on rank 0
  std::shared_ptr<const CompanionFiles> companions_;  // on rank 0; null before the first save
  std::string companions_from_;
  std::thread thread_;
  std::shared_ptr<Job> job_;  // in progress in the background
  std::atomic<bool> stop_{false};
  std::string last_;
  TensorDict buffers_;  // copies of the previous save
};

}  // namespace gantry
