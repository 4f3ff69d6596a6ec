// Files that are either complete or absent, even if the program is killed or the disk fails. Each file is written next
// to its destination, synced, and renamed. All functions throw ResourceError with the path and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gantry/core/file_system.h"

namespace gantry {

// A file being written. It is removed unless finish() is called.
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
  std::uint64_t size_ = 0,
                on_its_way_ = 0;  // bytes written; and of these the first ones that the disk was asked to write
};

struct DurableWay {
  std::string suffix =
      ".partial";         // suffix of the temporary name; choose a unique one if several processes write the same path
  bool is_synced = true;  // false: the file is complete for readers, but may be lost if the host fails soon afterwards
  // False: the caller syncs the directory itself, and another process may rename it as soon as the file exists.
  bool syncs_folder = true;
};

// A file that is moved to its destination by commit(). Without commit() it is removed. If the destination is a link,
// its target is replaced. Throws ResourceError if the destination is a device, a pipe or a socket.
class DurableFile {
 public:
  explicit DurableFile(const std::string& path, FileSystem& files = system_files(), const DurableWay& way = {});
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, std::size_t bytes) { file_.write(data, bytes); }
  void finish();  // nothing more is written; the file is on the disk under its temporary name
  void commit();  // calls finish() if necessary

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

// Creates the directory and its missing parents, each synced into its parent.
void make_folders(const std::string& path, FileSystem& files = system_files());
void sync_folder(const std::string& path, FileSystem& files);                            // "" is the working directory
void rename_durably(const std::string& from, const std::string& to, FileSystem& files);  // syncs the directory of `to`
// Removes a file, or a directory with its contents. It is not an error if the path does not exist.
void remove_tree(const std::string& path, FileSystem& files);

}  // namespace gantry
