// Multiple-choice questions, which a model answers by the likelihood of the choices, as in
// lm-evaluation-harness.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/tokenizers/text_ends.h"

namespace gantry {

struct ChoiceQuestion {
  std::int64_t first = 0;             // sample of its first choice
  std::vector<std::int64_t> lengths;  // characters of each choice
  std::int64_t answer = 0;            // index of the right choice
};

// Reads a file of JSON lines {"context": text, "choices": [texts], "answer": number from 0}. The optional key
// "delimiter" sets the text between context and choice (default " ").
//
// Each choice is a sample: input_ids and labels [samples, sequence_length]. Only the labels of the choice's
// tokens count. Context, delimiter and choice are encoded together. If the context alone has n tokens, the
// tokens after the first n are those of the choice. White space at the end of the context belongs to the
// choice. The context begins with the special tokens that precede a prompt. A choice that is too long keeps
// its last tokens. If nothing precedes the choice, it follows the tokenizer's begin token or, without one,
// its end token.
class ChoiceSamples final : public Dataset {
 public:
  // Throws InputError with file and line for an invalid line, a choice without tokens, or a token outside the
  // vocabulary.
  ChoiceSamples(const std::string& path, const std::string& tokenizer, const TextEnds& ends,
                std::int64_t sequence_length, std::int64_t vocabulary);

  const std::vector<ChoiceQuestion>& questions() const { return questions_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  std::int64_t sequence_length() const override { return length_; }
  std::vector<SampleEntry> entries() const override {
    return {{"input_ids", 0, length_}, {"labels", length_, length_}};
  }
  void read(std::int64_t index, std::int64_t* numbers) const override;

 private:
  struct Sample {
    TokenIds tokens;
    std::int64_t scored = 0;  // number of tokens at the end that count
  };
  void add_question(const std::string& line, const std::string& where);
  std::int64_t first_token(const std::string& where) const;
  Sample encode(std::string context, std::string continuation, const std::string& where) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  TokenIds before_;  // special tokens before the context
  std::int64_t length_, vocabulary_;
  std::vector<ChoiceQuestion> questions_;
  std::vector<Sample> samples_;
};

}  // namespace gantry
