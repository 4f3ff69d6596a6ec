// The bytes and lines of a text file, which may be compressed with gzip (*.gz) or Zstandard (*.zst), or a Parquet file
// whose rows are lines of JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace gantry {

// True for a name that ends with .jsonl, .jsonl.gz, .jsonl.zst or .parquet.
bool is_json_lines_file(const std::filesystem::path& path);

// Reads the bytes of a file one piece after the other.
class PieceReader {
 public:
  virtual ~PieceReader() = default;
  // Returns the next bytes, valid until the next call; empty at the end. Throws InputError for a damaged file.
  virtual std::string_view next() = 0;
  virtual std::int64_t consumed() const = 0;  // number of bytes of the file that have been read
};

// Throws InputError if the file cannot be read.
std::unique_ptr<PieceReader> open_pieces(const std::filesystem::path& path);

class LineFile {
 public:
  explicit LineFile(const std::filesystem::path& path) : path_(path), pieces_(open_pieces(path)) {}

  // Reads the next line, without its line feed. Returns false at the end of the file.
  bool next(std::string& line);
  // Reads everything after the last line that was read.
  void read_rest(std::string& text);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t number() const { return number_; }  // number of the last line, from 1
  std::int64_t consumed() const { return pieces_->consumed() - static_cast<std::int64_t>(piece_.size()); }

 private:
  std::filesystem::path path_;
  std::unique_ptr<PieceReader> pieces_;
  std::string_view piece_;  // its unread part
  std::int64_t number_ = 0;
};

}  // namespace gantry
