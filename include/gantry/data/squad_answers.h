// Converts a span model's logits to answers, and scores them like SQuAD's official evaluation.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/data/squad.h"

namespace gantry {

struct SquadAnswerOptions {
  std::int64_t n_best = 20;             // number of answers kept per question
  std::int64_t max_answer_length = 30;  // in tokens
  bool may_be_impossible = false;       // whether "" can be the answer; see SquadData::has_impossible
  float null_threshold = 0;             // "" wins if its score exceeds the best span's by more than this
};

struct SquadSpan {
  std::string text;        // text of the context; "" for no answer
  ByteSpan span;           // position in the context
  float score = 0;         // start logit + end logit
  double probability = 0;  // softmax over the scores of the kept answers
};

// Start and end logits of one window, per token of its encoding, with or without padding.
struct SquadLogits {
  std::span<const float> start;
  std::span<const float> end;
};

struct SquadPrediction {
  std::string text;  // the answer
  // Best first; a span that occurs in several windows is listed once, with its best score.
  std::vector<SquadSpan> n_best;
  float null_score = 0;  // score of [CLS]: the lowest over the windows
};

// Returns one prediction per question id, from the logits of all features in order. Throws UsageError if the logits do
// not match the features, and NumericalError if they are not finite.
std::map<std::string, SquadPrediction> predict_squad(const SquadData& data, const std::vector<SquadFeature>& features,
                                                     const std::vector<SquadLogits>& logits,
                                                     const SquadAnswerOptions& options);

// Normalises an answer as the official script does: lower case, without ASCII punctuation and the words a, an and the,
// with single spaces.
std::string normalise_answer(std::string_view answer);
// Returns 1 if both are equal after normalise_answer(), otherwise 0.
double exact_match(std::string_view prediction, std::string_view truth);
// Returns the harmonic mean of precision and recall over words after normalise_answer(). If one of them has no words,
// returns 1 if both have none, otherwise 0.
double f1_score(std::string_view prediction, std::string_view truth);

struct SquadScore {
  double exact = 0;  // percentage over all questions
  double f1 = 0;     // percentage over all questions
  std::int64_t total = 0;
  std::int64_t missing = 0;  // number of questions without a prediction, which score 0
};

// Returns the mean over all questions of the best score over each question's answers. Answers that are empty after
// normalise_answer() are ignored, and a question without other answers has the answer "", as in the official script of
// version 2.0. The script of version 1.1 differs only for such answers.
SquadScore evaluate_squad(const SquadData& data, const std::map<std::string, std::string>& predictions);

}  // namespace gantry
