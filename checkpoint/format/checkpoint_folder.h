// The folder in which a job keeps its checkpoints, and the way by which one comes into being: written into a hidden
// neighbour, synced, the manifest last, one rename; then `latest`, and only then older ones are removed. At no moment
// is there less than there was.
//
//   .lock                 held by the one job that writes here
//   .step-000012.partial  being written
//   .step-000012.replaced former contents of a step that is saved again, until the new ones have their name
//   .step-000012.removed  an older checkpoint on its way out
//
// What can't be removed (a file that another host holds open on NFS) is warned of, once, and tried again with the next
// save: the new checkpoint is in place then, and training goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/core/error.h"
#include "gantry/core/file_system.h"

namespace gantry {

// What one rank has written: its file and its tensors' slices in it.
struct RankPart {
  std::string file;
  ManifestFile facts;
  std::vector<ManifestTensor> tensors;  // one slice each
};

// "DIRECTORY/.step-000012.partial".
std::string partial_folder(const std::string& directory, std::int64_t step);
// "rank-00003.safetensors".
std::string rank_file_name(int rank);
// Writes the part next to the rank's file, completely or not at all. ResourceError.
void write_part(const std::string& folder, const RankPart& part, FileSystem& files);

// Which checkpoints stay when one is saved.
struct KeptSteps {
  int newest = 0;                     // so many; 0: all
  std::optional<std::int64_t> stays;  // a step that stays beside them
};

class CheckpointFolder {
 public:
  // Makes the folder, takes its lock, and removes the unfinished parts of earlier jobs. Throws CheckpointError if
  // another job, which the error names, still has the lock after `lock_seconds`, and ResourceError if the folder cannot
  // be written.
  CheckpointFolder(const std::string& directory, FileSystem& files, double lock_seconds = 0);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& directory() const { return directory_; }
  std::string partial(std::int64_t step) const { return partial_folder(directory_, step); }
  // Makes the empty partial folder. ResourceError where the disk has not `bytes` left.
  void begin(std::int64_t step, std::uint64_t bytes);
  // Waits until every rank's part is there, or `stop`. PeerError naming the first rank without one where no rank's file
  // has grown for `patience`. Returns false when stopped.
  bool wait_for_parts(std::int64_t step, int ranks, const std::atomic<bool>& stop, std::chrono::seconds patience) const;
  // Writes the companion files, makes the manifest of its header and the parts, and gives the folder its name; then
  // removes older checkpoints except for those that are kept. Returns the checkpoint's folder.
  std::string commit(Manifest header, int ranks, const KeptSteps& kept, const CompanionFiles& companions = {});
  // The warnings since the last call, a line each.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }
  void warn(const std::string& line) { warnings_.push_back(line); }

 private:
  std::string hidden(std::int64_t step, const char* suffix) const;
  void take_lock(double seconds);
  void clear_leftovers();
  void take_parts(Manifest& manifest, int ranks) const;
  void put_in_place(std::int64_t step);
  void name_latest(std::int64_t saved);
  void hide_older(std::int64_t newest, const KeptSteps& kept);
  void remove_hidden();
  void remove_or_warn(const std::string& folder);
  void warn_of_removal(const std::string& folder, const Error& error);

  std::string directory_;
  FileSystem& files_;
  int lock_ = -1;
  std::vector<std::string> warnings_;
  std::set<std::string> warned_;  // folders
};

}  // namespace gantry
