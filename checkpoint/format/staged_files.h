// Files of a model that replace those of an earlier save in a directory as a group. If the job is killed or
// the disk fails, readers find the earlier model, no model, or the new one, but never a mixture.
//
//   .parts    being written
//   .placing  complete and synced, being moved to their places; the next save finishes an interrupted move
//
// The files that readers open first (config.json, the index of shards) are removed first and placed last.
#pragma once

#include <string>

#include "gantry/core/io/durable_file.h"

namespace gantry {

class StagedFiles {
 public:
  // Makes the directory, places the files that an earlier save had completed, and removes its incomplete
  // files. Throws UsageError if the path is a file or another job writes to it. The
  // constructor and place() throw ResourceError if a file cannot be written.
  explicit StagedFiles(const std::string& directory, FileSystem& files = system_files());
  ~StagedFiles();  // removes files that were not placed
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  // The directory into which the files have to be written, synced, each under its own name. Ranks without the
  // object can use it.
  static std::string folder(const std::string& directory);
  std::string path(const std::string& name) const { return folder(directory_) + "/" + name; }
  void place();

 private:
  void finish();

  std::string directory_;
  FileSystem& files_;
  int lock_ = -1;
};

// The sentence that a reader adds to an error about a missing file, if a save was interrupted while it placed
// its files; otherwise "".
std::string unfinished_placing(const std::string& directory);

}  // namespace gantry
