// The documents of text files, one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/corpus/line_file.h"

namespace gantry {

struct DocumentOptions {
  std::string jsonl_key = "text";  // a line of *.jsonl (.gz, .zst) is an object, with the document
  bool lines = false;              // true: a line of other files is a document; false: the full file is one
};

class DocumentReader {
 public:
  // Throws InputError for a file that does not exist.
  DocumentReader(std::vector<std::string> files, const DocumentOptions& options);

  // Reads the next document; returns false at the end. Empty lines of *.jsonl are skipped. Throws InputError
  // with file and line for a line that cannot be read.
  bool next(std::string& document);
  // The next documents, with 8 MiB of text or a little more; none at the end.
  std::vector<std::string> next_batch();

  std::int64_t bytes() const { return bytes_; }  // size of all files
  std::int64_t bytes_read() const { return read_ + (open_ ? open_->consumed() : 0); }

 private:
  void open_next();
  bool next_here(std::string& document);
  void extract(std::string& line) const;
  const std::string& file() const { return files_[opened_ - 1]; }

  std::vector<std::string> files_;
  DocumentOptions options_;
  std::size_t opened_ = 0;  // files so far
  std::optional<LineFile> open_;
  bool is_read_ = false;  // the file that is open was read as one document
  std::int64_t bytes_ = 0;
  std::int64_t read_ = 0;  // bytes of the files before
};

}  // namespace gantry
