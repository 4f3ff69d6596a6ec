// Patterns of tiktoken in Oniguruma's syntax.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/tokenizers/tiktoken_file.h"

namespace gantry {
namespace {

// In Rust, ^ and $ are the ends of the text, and {1,3}+ is possessive. In Oniguruma, ^ and $ are the ends of a line,
// and {1,3}+ is repeated. Flags other than (?i: and the set operations -- and ~~ are rejected.
class PatternSpelling {
 public:
  PatternSpelling(std::string_view pattern, const std::string& place) : pattern_(pattern), place_(place) {}

  std::string spell() {
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\')
        take_escape();
      else if (depth_ > 0 || pattern_[at_] == '[')
        take_in_brackets();
      else
        take_outside();
    }
    return std::move(spelled_);
  }

 private:
  void take(std::size_t count) {
    spelled_ += pattern_.substr(at_, count);
    at_ += count;
  }
  void take_until(char end) { take(std::min(pattern_.find(end, at_), pattern_.size() - 1) - at_ + 1); }
  bool is_next(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void take_escape() {
    if (depth_ == 0) atom_ = spelled_.size();
    is_next("\\p{") || is_next("\\P{") || is_next("\\x{") ? take_until('}') : take(2);
  }

  void take_in_brackets() {
    for (const char* operation : {"--", "~~"})
      if (is_next(operation)) refuse(operation);
    if (pattern_[at_] == ']') --depth_;
    if (is_next("[:")) return take_until(']');
    if (pattern_[at_] != '[') return take(1);
    if (depth_++ == 0) atom_ = spelled_.size();
    take(1);
    if (is_next("^")) take(1);
    if (is_next("]")) take(1);  // the first one is a character
  }

  void take_outside() {
    const char c = pattern_[at_];
    if (c == '{') return take_interval();
    if (c == '(') open_group();
    if (c == ')' && !groups_.empty()) atom_ = groups_.back(), groups_.pop_back();
    if (c == '^' || c == '$') {
      spelled_ += c == '^' ? "\\A" : "\\z";
      ++at_;
      return;
    }
    const bool is_begin = (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // the first byte of a character
    if (is_begin && std::string_view("()|*+?").find(c) == std::string_view::npos) atom_ = spelled_.size();
    take(1);
  }

  void open_group() {
    groups_.push_back(spelled_.size());
    if (!is_next("(?")) return;
    for (const char* known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (is_next(known)) return;
    refuse(pattern_.substr(at_, 3));
  }

  void take_interval() {
    take_until('}');
    if (!is_next("+")) return;
    spelled_.insert(atom_, "(?>");
    spelled_ += ')';
    ++at_;
  }

  [[noreturn]] void refuse(std::string_view part) const {
    throw InputError({place_, fmt::format("the pattern has '{}', which Oniguruma does not read like tiktoken", part),
                      "groups with (?:, (?i:, (?=, (?!, (?<=, (?<! or (?>, and no -- or ~~ in brackets",
                      "write the pattern without it, or convert the tokenizer to tokenizer.json with transformers"});
  }

  std::string_view pattern_;
  const std::string& place_;
  std::string spelled_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;            // number of open brackets
  std::size_t atom_ = 0;             // begin of the last character, class or group in spelled_
  std::vector<std::size_t> groups_;  // begins of the open groups in spelled_
};

}  // namespace

std::string oniguruma_pattern(std::string_view pattern, const std::string& place) {
  return PatternSpelling(pattern, place).spell();
}

}  // namespace gantry
