// Files that are whole or not there: written to a neighbour, synced, renamed.
#pragma once

#include <cstddef>
#include <string>

namespace gantry {

class DurableFile {
 public:
  // Opens `path` + ".partial". ResourceError, here and below, with the path and the system's words.
  explicit DurableFile(const std::string& path);
  ~DurableFile();  // without commit: removes what was written
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail() const;
  std::string path_, partial_;
  int file_ = -1;
};

void write_text_durably(const std::string& path, const std::string& text);
// Makes a rename or a new entry in the folder last.
void sync_folder(const std::string& folder);
std::string read_text(const std::string& path);  // CheckpointError if it can't be read
std::string hash_file(const std::string& path);  // XXH3-128, 32 hexadecimal digits; CheckpointError if it can't be read

}  // namespace gantry
