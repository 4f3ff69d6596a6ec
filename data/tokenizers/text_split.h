// Splitting of text by a tokenizer's regular expression, before BPE.
//
// Published patterns are written for Oniguruma, which Hugging Face uses; PCRE2 runs them here. Where the two read a
// class differently it is spelled out: \s is Unicode's White_Space, and \p{L} and \p{N} are of Unicode 16.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace gantry {

class TextSplit {
 public:
  // What one thread needs while it splits.
  class Scratch;
  struct DeleteScratch {
    void operator()(Scratch* scratch) const;
  };
  using ScratchPointer = std::unique_ptr<Scratch, DeleteScratch>;
  static ScratchPointer make_scratch();

  // InputError for a pattern that PCRE2 does not take, with the place in it.
  explicit TextSplit(const std::string& pattern);

  // Gives the parts of `text` (valid UTF-8) to `take` in order: what matches, and what lies between matches. They cover
  // the whole text. `take` may split further with the same scratch. InputError for a pattern that needs too many steps.
  using Take = std::function<void(std::string_view part)>;
  void split(std::string_view text, Scratch& scratch, const Take& take) const;
  // The same, with whether the part is one that matches.
  using Visit = std::function<void(std::string_view part, bool matches)>;
  void visit(std::string_view text, Scratch& scratch, const Visit& visit) const;

 private:
  struct DeleteCode {
    void operator()(void* code) const;
  };
  std::string pattern_;
  std::unique_ptr<void, DeleteCode> code_;
};

// The pattern of GPT-2, and of ByteLevel where nothing else is said.
extern const char* const kGpt2Pattern;

}  // namespace gantry
