// The documents of text files, one after the other.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace gantry {

struct DocumentOptions {
  std::string jsonl_key = "text";  // a line of *.jsonl is an object, and this member of it the document
  bool lines = false;              // of other files: a line is a document; else the whole file is one
};

class DocumentReader {
 public:
  // InputError for a file that is not there.
  DocumentReader(std::vector<std::string> files, const DocumentOptions& options);

  // The next document; false at the end. Empty lines of *.jsonl are passed over. InputError with file and line for what
  // can't be read.
  bool next(std::string& document);

  std::int64_t bytes() const { return bytes_; }  // of all files
  std::int64_t bytes_read() const { return read_; }

 private:
  void open_next();
  bool next_here(std::string& document);
  bool next_line(std::string& line);
  void read_rest(std::string& document);
  void extract(std::string& line) const;
  const std::string& file() const { return files_[opened_ - 1]; }

  std::vector<std::string> files_;
  DocumentOptions options_;
  std::size_t opened_ = 0;  // files so far
  std::ifstream stream_;
  std::int64_t line_ = 0;
  std::int64_t bytes_ = 0, read_ = 0;
};

}  // namespace gantry
