// Question answering on SQuAD JSON files, versions 1.1 and 2.0: reads questions, and creates the windows for a span
// model.
//
// The format is {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}],
// "is_impossible"}]}]}]}; answer_start counts Unicode code points. Other keys are ignored. Source: Rajpurkar et al.
// 2016 and 2018, https://rajpurkar.github.io/SQuAD-explorer.
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
  ByteSpan span;  // position in the context
};

struct SquadExample {
  std::string id;
  std::string question;
  std::shared_ptr<const std::string> context;  // shared by all questions of a paragraph
  std::vector<SquadAnswer> answers;            // empty if the question is impossible, or if the file has no answers
  bool is_impossible = false;                  // the context does not answer the question (version 2.0)
};

struct SquadData {
  std::vector<SquadExample> examples;  // in the order of the file
  bool has_impossible = false;         // version 2.0: a question has the key is_impossible, true or false
  std::int64_t dropped_answers = 0;    // count for drop_misplaced_answers
};

struct SquadReadOptions {
  // True: answers that the context does not have at answer_start are dropped and counted, and so are questions without
  // remaining answers. False: they are errors.
  bool drop_misplaced_answers = false;
};

// Reads a file. Throws InputError with the position ("train.json:
// data[3].paragraphs[0].qas[2].answers[0].answer_start"), the value and the expected one. Repeated ids and repeated
// keys of an object are errors.
SquadData read_squad(const std::string& path, const SquadReadOptions& options = {});

struct SquadCounts {
  std::int64_t questions = 0;  // number of questions passed to `take`
  std::int64_t dropped_answers = 0;
  bool has_impossible = false;
};

// The same, but passes each question to `take` while the file is read. Memory is needed only for one article and the
// ids. Errors are thrown after the questions before them were passed on.
SquadCounts read_squad(const std::string& path, const std::function<void(SquadExample)>& take,
                       const SquadReadOptions& options = {});

// A window of one question: [CLS] question [SEP] part of the context [SEP].
struct SquadFeature {
  std::int64_t example = 0;  // index in SquadData::examples
  Encoding encoding;         // offsets of the second text are bytes of the context
  // The first and last token of the first answer, as positions in the encoding. Both are 0 ([CLS]) if the window does
  // not contain the full answer, or if there is no answer.
  std::int64_t start_position = 0;
  std::int64_t end_position = 0;
};

// Returns all windows of all questions, in order. Throws InputError with the question for which max_length is too
// small.
std::vector<SquadFeature> make_squad_features(const SquadData& data, const WordPiece& tokenizer,
                                              const EncodeOptions& options);

}  // namespace gantry
