#include "gantry/data/json_lines.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gantry/core/error.h"
#include "gantry/core/strict_json.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {
namespace {

using nlohmann::json;
using LinePaths = std::vector<std::filesystem::path>;

constexpr std::int64_t kNotCounted = -100;

// The tokens of one line. Those before `counted` are read and not trained on.
struct LineTokens {
  std::vector<std::int32_t> tokens;
  std::int64_t counted = 1;

  std::int64_t places() const { return static_cast<std::int64_t>(tokens.size()) - 1; }  // in a sample
};

// Lines, and which of them begin a sample.
struct PackedLines {
  std::vector<LineTokens> lines;
  std::vector<std::size_t> first_of_sample;
};

class LineEncoder {
 public:
  LineEncoder(const std::string& tokenizer, std::int64_t sequence_length, std::int64_t vocabulary)
      : path_(tokenizer),
        tokenizer_(load_tokenizer(tokenizer)),
        sequence_length_(sequence_length),
        vocabulary_(vocabulary) {}

  // `where`: file and line.
  LineTokens encode(const std::string& line, const std::string& where) const {
    const json object = parsed(line, where);
    LineTokens made;
    TokenIds ids;
    if (object.contains("text")) {
      tokenizer_->append(text_of(object, "text", where), ids);
    } else {
      tokenizer_->append(text_of(object, "prompt", where), ids);
      made.counted = std::max<std::int64_t>(1, static_cast<std::int64_t>(ids.size()));
      const std::string completion = text_of(object, "completion", where);
      if (completion.empty()) throw InputError({where, "has an empty completion", "text to train on", "take it out"});
      tokenizer_->append(completion, ids);
    }
    if (const auto end = tokenizer_->special().end) ids.push_back(*end);
    for (const auto id : ids) {
      if (id >= vocabulary_)
        throw InputError({where,
                          fmt::format("has token {} of the tokenizer {}, outside the model's vocabulary of {}", id,
                                      path_, vocabulary_),
                          fmt::format("0 to {}", vocabulary_ - 1), "check that data.tokenizer is the model's own"});
      made.tokens.push_back(static_cast<std::int32_t>(id));
    }
    check(made, where);
    return made;
  }

 private:
  static json parsed(const std::string& line, const std::string& where) {
    const char* expected = "an object with text, or with prompt and completion";
    if (const std::string fault = json_fault(line); !fault.empty()) throw InputError({where, fault, expected, ""});
    json object = json::parse(line);
    if (!object.is_object()) throw InputError({where, "is no object", expected, ""});
    if (object.contains("messages"))
      throw InputError({where, "has messages, and templates of chats are not in this version", expected,
                        "write them as prompt and completion by the model's own template"});
    const bool has_pair = object.contains("prompt") && object.contains("completion");
    if (object.contains("text") == has_pair)
      throw InputError({where, has_pair ? "has text beside prompt and completion" : "has neither", expected, ""});
    return object;
  }
  static std::string text_of(const json& object, const char* key, const std::string& where) {
    if (!object[key].is_string()) throw InputError({where, fmt::format("'{}' is no string", key), "a string", ""});
    return object[key].get<std::string>();
  }
  void check(const LineTokens& made, const std::string& where) const {
    if (made.places() > sequence_length_)
      throw InputError({where,
                        fmt::format("has {} tokens, more than data.sequence_length {} + 1 = {}", made.tokens.size(),
                                    sequence_length_, sequence_length_ + 1),
                        "a document that fits into a sample", "raise data.sequence_length, or shorten it"});
    if (made.places() < made.counted)
      throw InputError({where, fmt::format("has {} tokens, of which none is trained on", made.tokens.size()),
                        "two tokens, and one of the completion", "take it out"});
  }

  std::string path_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::int64_t sequence_length_, vocabulary_;
};

std::vector<LineTokens> encode_lines(const LinePaths& paths, const LineEncoder& encoder) {
  std::vector<LineTokens> lines;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw InputError({path.string(), "can't be read", "a file of JSON lines", "check the path"});
    std::int64_t number = 0;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      lines.push_back(encoder.encode(line, fmt::format("{}:{}", path.string(), number)));
    }
    if (stream.bad()) throw InputError({path.string(), "can't be read to its end", "a file of JSON lines", ""});
  }
  return lines;
}

PackedLines pack(std::vector<LineTokens> lines, std::int64_t sequence_length) {
  PackedLines packed{std::move(lines), {}};
  std::int64_t left = 0;
  for (std::size_t i = 0; i < packed.lines.size(); ++i) {
    if (packed.first_of_sample.empty() || packed.lines[i].places() > left) {
      packed.first_of_sample.push_back(i);
      left = sequence_length;
    }
    left -= packed.lines[i].places();
  }
  return packed;
}

// Encoded once for all ranks of this process that hold it at the same time.
std::shared_ptr<const PackedLines> shared_lines(const LinePaths& paths, const std::string& tokenizer,
                                                std::int64_t sequence_length, std::int64_t vocabulary) {
  static std::mutex mutex;
  static std::map<std::tuple<LinePaths, std::string, std::int64_t, std::int64_t>, std::weak_ptr<const PackedLines>> all;
  const std::lock_guard lock(mutex);
  auto& known = all[{paths, tokenizer, sequence_length, vocabulary}];
  if (auto lines = known.lock()) return lines;
  const LineEncoder encoder(tokenizer, sequence_length, vocabulary);
  auto lines = std::make_shared<const PackedLines>(pack(encode_lines(paths, encoder), sequence_length));
  known = lines;
  return lines;
}

class JsonLines final : public Dataset {
 public:
  JsonLines(std::shared_ptr<const PackedLines> packed, std::int64_t sequence_length)
      : packed_(std::move(packed)), length_(sequence_length) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(packed_->first_of_sample.size()); }
  std::int64_t sequence_length() const override { return length_; }
  std::vector<SampleEntry> entries() const override { return packed_entries(length_); }

  void read(std::int64_t index, std::int64_t* numbers) const override {
    const auto& starts = packed_->first_of_sample;
    const auto sample = static_cast<std::size_t>(index);
    const std::size_t begin = starts[sample];
    const std::size_t end = sample + 1 < starts.size() ? starts[sample + 1] : packed_->lines.size();
    std::int64_t *ids = numbers, *labels = ids + length_, *documents = labels + length_;
    std::int64_t place = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const LineTokens& line = packed_->lines[i];
      for (std::int64_t token = 0; token < line.places(); ++token, ++place) {
        ids[place] = line.tokens[static_cast<std::size_t>(token)];
        labels[place] = token + 1 < line.counted ? kNotCounted : line.tokens[static_cast<std::size_t>(token + 1)];
        documents[place] = static_cast<std::int64_t>(i - begin);
      }
    }
    std::fill(ids + place, ids + length_, 0);
    std::fill(labels + place, labels + length_, kNotCounted);
    std::fill(documents + place, documents + length_, static_cast<std::int64_t>(end - begin));
  }

 private:
  std::shared_ptr<const PackedLines> packed_;
  std::int64_t length_;
};

}  // namespace

std::unique_ptr<Dataset> open_json_lines(const LinePaths& files, const std::string& tokenizer,
                                         std::int64_t sequence_length, std::int64_t vocabulary_size,
                                         const std::string& place) {
  refuse_much_text(files, "lines", place, "split the files over several runs");
  auto packed = shared_lines(files, tokenizer, sequence_length, vocabulary_size);
  if (packed->lines.empty())
    throw InputError({place, "has no line that is not empty", "lines of JSON to train on", ""});
  return std::make_unique<JsonLines>(std::move(packed), sequence_length);
}

}  // namespace gantry
