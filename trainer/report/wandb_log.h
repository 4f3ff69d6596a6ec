// The file of a run of Weights & Biases, run-ID.wandb. It has a header of 7 bytes, and records in the framing of
// LevelDB's log (https://github.com/google/leveldb/blob/main/doc/log_format.md), with CRC-32 as in zlib.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace gantry {

std::string wandb_log_header();

// The bytes of a record that begins at `offset` of the file: its chunks, after the padding of the block before.
std::string wandb_log_record(std::int64_t offset, std::string_view record);

struct WandbLogRecord {
  std::string_view bytes;           // valid during the call
  std::int64_t begin = 0, end = 0;  // offsets in the file
};

// Passes the records of the file in their order to `use`, until it returns false, or up to the first record that is not
// complete or whose check fails. Returns the offset after the last record that was passed; 0 if the file has no
// header, or cannot be read.
std::int64_t read_wandb_log(const std::string& path, const std::function<bool(const WandbLogRecord&)>& use);

class WandbLog {
 public:
  // Writes to `path` from `offset` on, and drops what the file has after it. 0: a new file, with its header. This
  // constructor and append() throw ResourceError if the file cannot be written.
  WandbLog(const std::string& path, std::int64_t offset);

  // Flushed, so that a reader sees full records.
  void append(std::string_view record);

 private:
  void write(const std::string& bytes);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::int64_t offset_ = 0;
};

}  // namespace gantry
