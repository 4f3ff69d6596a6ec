// Questions with choices, which a model answers by their likelihood, as lm-evaluation-harness asks them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/tokenizers/text_ends.h"

namespace gantry {

struct ChoiceQuestion {
  std::int64_t first = 0;             // of its choices among the samples
  std::vector<std::int64_t> lengths;  // of the choices, in characters
  std::int64_t answer = 0;            // the number of the right one
};

// Of a file of JSON lines {"context": text, "choices": [texts], "answer": number from 0}, with "delimiter" between
// context and choice (" " without it).
//
// A choice is a sample: input_ids and labels [samples, sequence_length], of which the choice's tokens count. Context,
// delimiter and choice are encoded together, and the choice's tokens are those behind as many as the context has by
// itself; white space at the context's end belongs to the choice. The tokens before a prompt precede the context. A
// choice that is too long keeps its last tokens. If nothing precedes the choice, the tokenizer's first or last token
// does.
class ChoiceSamples final : public Dataset {
 public:
  // InputError with file and line for what is no such object, for a choice without tokens, and for a token outside the
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
    std::int64_t scored = 0;  // the last so many
  };
  void add_question(const std::string& line, const std::string& where);
  std::int64_t first_token(const std::string& where) const;
  Sample encode(std::string context, std::string continuation, const std::string& where) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  TokenIds before_;  // the context
  std::int64_t length_, vocabulary_;
  std::vector<ChoiceQuestion> questions_;
  std::vector<Sample> samples_;
};

}  // namespace gantry
