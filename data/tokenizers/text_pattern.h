// Finding the matches of a tokenizer's regular expression.
//
// Oniguruma, the engine of Hugging Face's tokenizers, runs the patterns, with its default syntax. The classes \p{...},
// \w and \d are those of Unicode 16. The patterns of GPT-2, Llama 3 and Qwen2 and their copies in other models have
// functions of their own (word_scanner.h), which find the same matches faster.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gantry/data/tokenizers/word_scanner.h"

namespace gantry {

class TextPattern {
 public:
  // Throws InputError with Oniguruma's message for a pattern that it rejects. `own_scanner`: use the faster function if
  // the pattern has one.
  explicit TextPattern(const std::string& pattern, bool own_scanner = true);

  // Passes the parts of `text` (valid UTF-8) to `visit` in order: matches and the text between them. They cover the
  // whole text. Matches may be empty, other parts are not. Thread-safe. Throws InputError for a pattern that needs too
  // many steps.
  using Visit = std::function<void(std::string_view part, bool matches)>;
  void visit(std::string_view text, const Visit& visit) const;

 private:
  struct FreeRegex {
    void operator()(void* regex) const;
  };
  struct Match {
    std::size_t begin, end;
  };
  std::optional<Match> find(std::string_view text, std::size_t from) const;

  std::string pattern_;
  std::unique_ptr<void, FreeRegex> regex_;
  WordScanner scanner_ = nullptr;  // null: Oniguruma
};

// The pattern of GPT-2 (Radford et al. 2019), also the default of ByteLevel.
extern const char* const kGpt2Pattern;

}  // namespace gantry
