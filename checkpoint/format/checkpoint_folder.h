// The directory in which a job keeps its checkpoints. A new checkpoint is written into a hidden folder in the
// same directory and synced, the manifest last. One rename then gives it its final name. After that, `latest`
// is updated, and only then are older checkpoints removed. A job that ends in between loses no complete
// checkpoint.
//
//   .lock                 held by the one job that writes here
//   .step-000012.partial  being written
//   .step-000012.replaced former contents of a step that is saved again, until the new ones have their name
//   .step-000012.removed  an older checkpoint on its way out
//
// If a folder cannot be removed (for example because another host holds a file open on NFS), there is one
// warning, and the next save tries again. The new checkpoint is already in place, so training continues.
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

// The output of one rank: its file, and the slices of tensors in this file.
struct RankPart {
  std::string file;
  ManifestFile facts;
  std::vector<ManifestTensor> tensors;  // one slice each
};

// "DIRECTORY/.step-000012.partial".
std::string partial_folder(const std::string& directory, std::int64_t step);
// "rank-00003.safetensors".
std::string rank_file_name(int rank);
// Writes the part next to the rank's file, completely or not at all. Throws ResourceError.
void write_part(const std::string& folder, const RankPart& part, FileSystem& files);

// The checkpoints that remain after a save.
struct KeptSteps {
  int newest = 0;                     // number of newest checkpoints to keep; 0: all
  std::optional<std::int64_t> stays;  // a step that is kept in addition
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
  // Makes the empty partial folder. Throws ResourceError if the disk has less than `bytes` left.
  void begin(std::int64_t step, std::uint64_t bytes);
  // Waits until the part of every rank exists; returns false if `stop` was set before. Throws PeerError,
  // naming the first rank without a part, if no rank's file has grown for `patience`.
  bool wait_for_parts(std::int64_t step, int ranks, const std::atomic<bool>& stop, std::chrono::seconds patience) const;
  // Writes the companion files, combines the header and the parts into the manifest, and gives the folder its
  // name. Then removes older checkpoints except for those in `kept`. Returns the checkpoint's folder.
  std::string commit(Manifest header, int ranks, const KeptSteps& kept, const CompanionFiles& companions = {});
  // Returns the warnings since the last call, one line each.
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
