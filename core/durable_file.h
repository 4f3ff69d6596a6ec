// Files that are whole or not there, whenever the program is killed or the disk fails: each is written beside its
// place, synced, and renamed. ResourceError, here and below, with the path and the system's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gantry/core/file_system.h"

namespace gantry {

// A file being written. Unless finished it is removed again.
class OutputFile {
 public:
  OutputFile(FileSystem& files, const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void finish(bool is_synced = true);  // and closed
  std::uint64_t size() const { return size_; }

 private:
  void write_all(const char* left, std::size_t bytes);

  FileSystem& files_;
  std::string path_;
  int file_;
  std::uint64_t size_ = 0, on_its_way_ = 0;  // bytes; of these the first, which the disk was asked to take
};

struct DurableWay {
  std::string suffix = ".partial";  // of the name that is written to: one of its own where processes share a path
  bool is_synced = true;            // false: whole for who reads it, and maybe lost if the host fails soon after
  // False: somebody else syncs the folder, who may rename it as soon as the file is there.
  bool syncs_folder = true;
};

// A file that takes its place by commit(). Without that it is removed again.
class DurableFile {
 public:
  explicit DurableFile(const std::string& path, FileSystem& files = system_files(), const DurableWay& way = {});
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, std::size_t bytes) { file_.write(data, bytes); }
  void finish();  // nothing more is written: it is on the disk under the other name
  void commit();  // finished, if it is not

 private:
  enum class State { kOpen, kFinished, kCommitted };

  FileSystem& files_;
  std::string path_, partial_;
  bool is_synced_, syncs_folder_;
  State state_ = State::kOpen;
  OutputFile file_;
};

void write_text_durably(const std::string& path, const std::string& text, FileSystem& files = system_files(),
                        const DurableWay& way = {});

// The folder and those above it that are missing, each synced into its parent.
void make_folders(const std::string& path, FileSystem& files = system_files());
void sync_folder(const std::string& path, FileSystem& files);                            // "" is the working directory
void rename_durably(const std::string& from, const std::string& to, FileSystem& files);  // the folder of `to` is synced
// A file, or a folder with all in it; what is not there is no error.
void remove_tree(const std::string& path, FileSystem& files);

}  // namespace gantry
