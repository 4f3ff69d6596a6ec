#define PCRE2_CODE_UNIT_WIDTH 8
#include "gantry/data/tokenizers/text_split.h"

#include <algorithm>
#include <fmt/format.h>
#include <pcre2.h>

#include "gantry/core/error.h"
#include "gantry/core/utf8.h"

namespace gantry {

// Of the GPT-2 release (Radford et al. 2019).
const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// White_Space of Unicode; PCRE2's \s has U+180E as well.
constexpr const char* kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Letters and numbers that Unicode 15 and 16 added, since Debian's PCRE2 knows Unicode 14.
constexpr const char* kLetters =
    R"(\p{L}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65}\x{10d6f}-\x{10d85})"
    R"(\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1})"
    R"(\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446})"
    R"(\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a})"
    R"(\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr const char* kNumbers =
    R"(\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
    R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";

constexpr std::uint32_t kMostSteps = 50'000'000;  // of one match, so that a hostile pattern ends
constexpr std::size_t kLeastStack = 64 << 10, kMostStack = 64 << 20;

// What stands at the start of `rest` and must be spelled out: its length, the ranges, and whether they are negated.
struct Class {
  std::size_t length = 0;
  const char* ranges = nullptr;
  bool is_negated = false;
};

Class class_at(std::string_view rest) {
  for (const auto& [name, found] :
       {std::pair(R"(\s)", Class{2, kSpaces}), std::pair(R"(\S)", Class{2, kSpaces, true}),
        std::pair(R"(\p{L})", Class{5, kLetters}), std::pair(R"(\P{L})", Class{5, kLetters, true}),
        std::pair(R"(\p{N})", Class{5, kNumbers}), std::pair(R"(\P{N})", Class{5, kNumbers, true})})
    if (rest.starts_with(name)) return found;
  return {};
}

std::string spell_out(std::string_view pattern) {
  std::string spelled;
  bool in_brackets = false;
  for (std::size_t at = 0; at < pattern.size();) {
    const Class found = class_at(pattern.substr(at));
    // A negated class within brackets has no spelling as ranges and stays PCRE2's own.
    if (found.ranges && !(in_brackets && found.is_negated)) {
      spelled += in_brackets ? found.ranges : fmt::format("[{}{}]", found.is_negated ? "^" : "", found.ranges);
      at += found.length;
      continue;
    }
    const std::size_t length = pattern[at] == '\\' ? 2 : 1;
    if (length == 1 && pattern[at] == '[') in_brackets = true;
    if (length == 1 && pattern[at] == ']') in_brackets = false;
    spelled += pattern.substr(at, length);
    at += length;
  }
  return spelled;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

class TextSplit::Scratch {
 public:
  Scratch()
      : stack_(pcre2_jit_stack_create(kLeastStack, kMostStack, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        match_(pcre2_match_data_create(1, nullptr)) {
    if (!stack_ || !context_ || !match_)
      throw ResourceError({"tokenizer", "there is no memory for a regular expression", "", "free some memory"});
    pcre2_jit_stack_assign(context_, nullptr, stack_);
    pcre2_set_match_limit(context_, kMostSteps);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_match_data_free(match_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }

  // The first match at or after `at`: {begin, end}, or {text.size(), text.size()} if there is none.
  std::pair<std::size_t, std::size_t> find(void* code, std::string_view text, std::size_t at,
                                           const std::string& pattern) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const auto* compiled = static_cast<pcre2_code*>(code);
    int found = pcre2_match(compiled, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match_, context_);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter's stack is the heap
      found = pcre2_match(compiled, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match_, context_);
    if (found == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
    if (found < 0)
      throw InputError({"tokenizer's pattern " + pattern, fmt::format("{} at byte {} of a text", message_of(found), at),
                        "a pattern that needs few steps", ""});
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match_);
    return {offsets[0], offsets[1]};
  }

 private:
  pcre2_jit_stack* stack_;
  pcre2_match_context* context_;
  pcre2_match_data* match_;
};

void TextSplit::DeleteScratch::operator()(Scratch* scratch) const { delete scratch; }
TextSplit::ScratchPointer TextSplit::make_scratch() { return ScratchPointer(new Scratch()); }
void TextSplit::DeleteCode::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

TextSplit::TextSplit(const std::string& pattern) : pattern_(pattern) {
  int error = 0;
  PCRE2_SIZE place = 0;
  const std::string spelled = spell_out(pattern);
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr));
  if (!code_)
    throw InputError({"tokenizer's pattern " + pattern,
                      fmt::format("{} after '{}'", message_of(error), spelled.substr(0, place)),
                      "a regular expression that PCRE2 accepts", ""});
  pcre2_jit_compile(static_cast<pcre2_code*>(code_.get()), PCRE2_JIT_COMPLETE);  // where it can't, the interpreter runs
}

void TextSplit::split(std::string_view text, Scratch& scratch, const Take& take) const {
  visit(text, scratch, [&](std::string_view part, bool) { take(part); });
}

void TextSplit::visit(std::string_view text, Scratch& scratch, const Visit& visit) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [begin, end] = scratch.find(code_.get(), text, at, pattern_);
    if (begin > done) visit(text.substr(done, begin - done), false);
    if (end > begin) visit(text.substr(begin, end - begin), true);
    done = std::max(begin, end);
    // An empty match parts what is around it.
    at = end > begin || end >= text.size() ? end : end + utf8_length(text[end]);
  }
  if (done < text.size()) visit(text.substr(done), false);
}

}  // namespace gantry
