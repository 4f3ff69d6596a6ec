// Files of a model that take their places in a directory together, over those of an earlier save: whenever the job is
// killed or the disk fails, readers find the earlier model, none, or the new one, never files of both.
//
//   .parts    being written
//   .placing  whole and synced, on their way to their places; the next save there finishes that
//
// What readers begin with (config.json, the index of shards) is taken away first and comes last.
#pragma once

#include <string>

#include "gantry/core/io/durable_file.h"

namespace gantry {

class StagedFiles {
 public:
  // Makes the directory, finishes what an earlier save was about to place, and clears up what it left unfinished.
  // UsageError where the path is a file or another job writes there; ResourceError, here and below.
  explicit StagedFiles(const std::string& directory, FileSystem& files = system_files());
  ~StagedFiles();  // what was not placed is removed
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  // Where the files are to be written, synced, each under its own name. Known to ranks that don't hold the object.
  static std::string folder(const std::string& directory);
  std::string path(const std::string& name) const { return folder(directory_) + "/" + name; }
  void place();

 private:
  void finish();

  std::string directory_;
  FileSystem& files_;
  int lock_ = -1;
};

// What a directory's reader adds where a file is missing because a save into it was ended while it placed its files;
// "" where none was.
std::string unfinished_placing(const std::string& directory);

}  // namespace gantry
