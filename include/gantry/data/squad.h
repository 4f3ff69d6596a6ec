// Question answering on SQuAD-format JSON, versions 1.1 and 2.0: the questions of a file, and the windows that a span
// model reads.
//
// The format: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}],
// "is_impossible"}]}]}]}, where answer_start counts Unicode code points. Keys that are not named here are passed over.
// Source: Rajpurkar et al. 2016 and 2018, https://rajpurkar.github.io/SQuAD-explorer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/word_piece.h"

namespace gantry {

struct SquadAnswer {
  std::string text;
  ByteSpan span;  // where the context has it
};

struct SquadExample {
  std::string id;
  std::string question;
  std::shared_ptr<const std::string> context;  // one object for all questions of a paragraph
  std::vector<SquadAnswer> answers;            // empty where there are none, or nobody has answered
  bool is_impossible = false;                  // the context does not answer the question (2.0)
};

struct SquadData {
  std::vector<SquadExample> examples;  // in the file's order
  bool has_impossible = false;         // 2.0: whether any question says is_impossible, true or false
  std::int64_t dropped_answers = 0;    // with drop_misplaced_answers
};

struct SquadReadOptions {
  // Answers that the context does not have at answer_start: refused, or left out and counted. A question that loses all
  // its answers is left out too.
  bool drop_misplaced_answers = false;
};

// InputError names the place in the file ("train.json: data[3].paragraphs[0].qas[2].answers[0].answer_start"), the
// value and what was expected; ids that are there twice and keys that an object has twice are refused.
SquadData read_squad(const std::string& path, const SquadReadOptions& options = {});

struct SquadCounts {
  std::int64_t questions = 0;  // that were handed out
  std::int64_t dropped_answers = 0;
  bool has_impossible = false;
};

// The same, one question after the other as the file is read: memory is that of one article and of the ids. What is
// wrong further on is found after the questions before it were taken.
SquadCounts read_squad(const std::string& path, const std::function<void(SquadExample)>& take,
                       const SquadReadOptions& options = {});

// A window of one question: [CLS] question [SEP] part of the context [SEP].
struct SquadFeature {
  std::int64_t example = 0;  // of SquadData::examples
  Encoding encoding;         // offsets of the second text are bytes of the context
  // The first and last token of the first answer, as places in the encoding; both 0 ([CLS]) where the window has not
  // all of it, or there is none.
  std::int64_t start_position = 0;
  std::int64_t end_position = 0;
};

// All windows of all questions, in order. InputError names the question that max_length has no room for.
std::vector<SquadFeature> make_squad_features(const SquadData& data, const WordPiece& tokenizer,
                                              const EncodeOptions& options);

}  // namespace gantry
