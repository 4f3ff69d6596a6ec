#include "gantry/data/tokenizers/text_pattern.h"

#include <fmt/format.h>
#include <mutex>
#include <oniguruma.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/characters.h"

namespace gantry {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr unsigned long kMostSteps = 50'000'000;  // backtracking steps of one search, so that a hostile pattern ends

const OnigUChar* bytes_of(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

std::string message_of(int error, OnigErrorInfo* details = nullptr) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN] = {};
  onig_error_code_to_str(text, error, details);
  return reinterpret_cast<const char*>(text);
}

// A class of characters in a pattern: \p{Lu}, \P{Han}, \p{^N}, \w, \D or [:punct:].
struct ClassName {
  std::size_t length = 0;  // bytes in the pattern; 0: no class
  std::string_view name;
  bool is_negated = false;
};

ClassName class_at(std::string_view rest) {
  if (rest.starts_with("[:punct:]")) return {9, "punct", false};
  if (rest.starts_with("[:^punct:]")) return {10, "punct", true};
  if (rest.size() < 2 || rest[0] != '\\') return {};
  if (rest[1] == 'w' || rest[1] == 'd') return {2, rest.substr(1, 1), false};
  if (rest[1] == 'W') return {2, "w", true};
  if (rest[1] == 'D') return {2, "d", true};
  const std::size_t end = rest.find('}');
  if ((rest[1] != 'p' && rest[1] != 'P') || rest.size() < 4 || rest[2] != '{' || end == std::string_view::npos)
    return {};
  const bool has_caret = rest[3] == '^';
  return {end + 1, rest.substr(3 + has_caret, end - 3 - has_caret), (rest[1] == 'P') != has_caret};
}

// The class with its later characters; "" if it has none. Outside of brackets Oniguruma reads \w with more characters
// than inside, so that it is not put into brackets. [:punct:] has had symbols since Oniguruma 6.9.9.
std::string spelling_of_class(const ClassName& found, bool in_brackets) {
  const char* caret = found.is_negated ? "^" : "";
  if (found.name == "punct")
    return fmt::format(R"([{}\p{{P}}{}\p{{S}}{}])", caret, later_ranges("P"), later_ranges("S"));
  const std::string ranges = later_ranges(found.name);
  if (ranges.empty()) return "";
  if (found.name == "w" && !in_brackets)
    return found.is_negated ? fmt::format(R"((?:(?![{}])\W))", ranges) : fmt::format(R"((?:\w|[{}]))", ranges);
  const std::string plain = found.name.size() == 1 && found.length == 2 ? fmt::format("\\{}", found.name)
                                                                        : fmt::format("\\p{{{}}}", found.name);
  return fmt::format("[{}{}{}]", caret, plain, ranges);
}

// Adds later characters to the classes of a pattern, as nested classes: \P{N} becomes [^\p{N}\x{10d40}-...].
std::string with_later_characters(std::string_view pattern) {
  std::string spelled;
  int depth = 0;  // number of open brackets
  for (std::size_t at = 0; at < pattern.size();) {
    const ClassName found = class_at(pattern.substr(at));
    const std::string spelling = found.length ? spelling_of_class(found, depth > 0) : "";
    std::size_t length = found.length ? found.length : pattern[at] == '\\' ? 2 : 1;
    if (!found.length && pattern[at] == '[') {
      ++depth;
      if (pattern.substr(at + 1, 1) == "^") ++length;
      if (pattern.substr(at + length, 1) == "]") ++length;  // the first one is a character
    } else if (!found.length && pattern[at] == ']' && depth > 0) {
      --depth;
    }
    spelled += spelling.empty() ? pattern.substr(at, length) : std::string_view(spelling);
    at += length;
  }
  return spelled;
}

struct FreeRegion {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};
struct FreeMatchParam {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

// The buffers of a search; each thread has its own.
struct SearchBuffers {
  std::unique_ptr<OnigRegion, FreeRegion> region{onig_region_new()};
  std::unique_ptr<OnigMatchParam, FreeMatchParam> param{onig_new_match_param()};
  SearchBuffers() {
    if (!region || !param)
      throw ResourceError({"tokenizer", "there is no memory for a regular expression", "", "free some memory"});
    onig_initialize_match_param(param.get());
    onig_set_retry_limit_in_match_of_match_param(param.get(), kMostSteps);
    onig_set_retry_limit_in_search_of_match_param(param.get(), kMostSteps);
  }
};

}  // namespace

void TextPattern::FreeRegex::operator()(void* regex) const { onig_free(static_cast<OnigRegex>(regex)); }

TextPattern::TextPattern(const std::string& pattern, bool own_scanner) : pattern_(pattern) {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    onig_set_warn_func([](const char*) {});
    onig_set_verb_warn_func([](const char*) {});
  });
  if (own_scanner) scanner_ = word_scanner_of(pattern);
  if (scanner_) return;
  const std::string spelled = with_later_characters(pattern);
  OnigRegex made = nullptr;
  OnigErrorInfo details{};
  const int error = valid_utf8_prefix(pattern) < pattern.size()
                        ? ONIGERR_INVALID_WIDE_CHAR_VALUE
                        : onig_new(&made, bytes_of(spelled), bytes_of(spelled) + spelled.size(), ONIG_OPTION_NONE,
                                   ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &details);
  if (error != ONIG_NORMAL)
    throw InputError({"tokenizer's pattern " + pattern, message_of(error, &details),
                      "a regular expression that Oniguruma accepts", ""});
  regex_.reset(made);
}

std::optional<TextPattern::Match> TextPattern::find(std::string_view text, std::size_t from) const {
  thread_local const SearchBuffers buffers;
  const OnigUChar *begin = bytes_of(text), *end = begin + text.size();
  const int found = onig_search_with_param(static_cast<OnigRegex>(regex_.get()), begin, end, begin + from, end,
                                           buffers.region.get(), ONIG_OPTION_NONE, buffers.param.get());
  if (found == ONIG_MISMATCH) return std::nullopt;
  if (found < 0)
    throw InputError({"tokenizer's pattern " + pattern_,
                      fmt::format("{} at byte {} of a text", message_of(found), from), "a pattern that needs few steps",
                      ""});
  return Match{static_cast<std::size_t>(found), static_cast<std::size_t>(buffers.region->end[0])};
}

void TextPattern::visit(std::string_view text, const Visit& visit) const {
  if (scanner_) return scanner_(text, visit);
  if (text.empty()) return;
  std::size_t done = 0;
  std::optional<std::size_t> last_end;
  for (std::size_t at = 0; at <= text.size();) {
    const auto match = find(text, at);
    if (!match) break;
    if (match->begin == match->end && last_end == match->end) {  // an empty match at the end of the last one
      at = match->end < text.size() ? match->end + utf8_length(text[match->end]) : text.size() + 1;
      continue;
    }
    if (match->begin > done) visit(text.substr(done, match->begin - done), false);
    visit(text.substr(match->begin, match->end - match->begin), true);
    done = at = match->end;
    last_end = match->end;
  }
  if (done < text.size()) visit(text.substr(done), false);
}

}  // namespace gantry
