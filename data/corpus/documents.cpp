#include "gantry/data/corpus/documents.h"

#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Keeps one string member of an object and passes over the rest, however deep.
class MemberFinder final : public json::json_sax_t {
 public:
  explicit MemberFinder(const std::string& key) : key_(key) {}
  std::optional<std::string> text;
  std::string fault;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return value() && ++depth_ > 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return value() && ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    is_wanted_ = depth_ == 1 && name == key_;
    if (is_wanted_ && text) return refuse(fmt::format("the key '{}' occurs twice", key_));
    return true;
  }
  bool string(string_t& content) override {
    if (!is_wanted_) return value();
    text = std::move(content);
    is_wanted_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("the line is not JSON at byte {}", position));
  }

 private:
  bool refuse(const std::string& what) {
    fault = what;
    return false;
  }
  bool value() { return is_wanted_ ? refuse(fmt::format("'{}' is not a string", key_)) : true; }

  const std::string& key_;
  int depth_ = 0;
  bool is_wanted_ = false;  // the next value is the member's
};

}  // namespace

DocumentReader::DocumentReader(std::vector<std::string> files, const DocumentOptions& options)
    : files_(std::move(files)), options_(options) {
  for (const auto& file : files_) {
    std::error_code failure;
    const auto size = fs::is_regular_file(file, failure) ? fs::file_size(file, failure) : 0;
    if (failure || !is_file(file))
      throw InputError(
          {file, failure ? failure.message() : "the path is not a regular file", "a text file", "check the path"});
    bytes_ += static_cast<std::int64_t>(size);
  }
}

bool DocumentReader::next(std::string& document) {
  for (;; open_next()) {
    if (opened_ > 0 && next_here(document)) return true;
    if (opened_ == files_.size()) return false;
  }
}

std::vector<std::string> DocumentReader::next_batch() {
  constexpr std::size_t kBatchBytes = 8 << 20, kBytesOfDocument = 64;  // many empty ones fill a batch too
  std::vector<std::string> batch;
  std::size_t bytes = 0;
  for (std::string text; bytes < kBatchBytes && next(text);) {
    bytes += text.size() + kBytesOfDocument;
    batch.push_back(std::move(text));
  }
  return batch;
}

void DocumentReader::open_next() {
  if (open_) read_ += open_->consumed();
  open_.emplace(files_[opened_++]);
  is_read_ = false;
}

bool DocumentReader::next_here(std::string& document) {
  const bool is_jsonl = is_json_lines_file(file());
  if (!is_jsonl && !options_.lines) {
    if (std::exchange(is_read_, true)) return false;
    open_->read_rest(document);
    return true;
  }
  while (open_->next(document)) {
    if (document.ends_with('\r')) document.pop_back();
    if (!is_jsonl) return true;
    if (document.find_first_not_of(" \t") == std::string::npos) continue;
    extract(document);
    return true;
  }
  return false;
}

void DocumentReader::extract(std::string& line) const {
  MemberFinder finder(options_.jsonl_key);
  const bool is_full = json::sax_parse(line, &finder);
  if (is_full && finder.text) {
    line = std::move(*finder.text);
    return;
  }
  throw InputError({fmt::format("{}:{}", file(), open_->number()),
                    is_full ? fmt::format("the object has no '{}'", options_.jsonl_key) : finder.fault,
                    fmt::format("an object with a string '{}'", options_.jsonl_key), ""});
}

}  // namespace gantry
