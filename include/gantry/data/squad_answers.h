// From a span model's logits to answers, and the scores that SQuAD's official evaluation gives them.
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
  std::int64_t n_best = 20;             // answers kept for each question
  std::int64_t max_answer_length = 30;  // tokens
  bool may_be_impossible = false;       // whether "" may be the answer; SquadData::has_impossible
  float null_threshold = 0;             // "" wins where its score exceeds the best span's by more than this
};

struct SquadSpan {
  std::string text;        // of the context as it is written; "" for no answer
  ByteSpan span;           // in the context
  float score = 0;         // start logit + end logit
  double probability = 0;  // softmax of the scores kept
};

// Start and end logits of one window, by token of its encoding; padding included or not.
struct SquadLogits {
  std::span<const float> start;
  std::span<const float> end;
};

struct SquadPrediction {
  std::string text;               // the answer
  std::vector<SquadSpan> n_best;  // best first; a span that several windows have counts once, by its best score
  float null_score = 0;           // of [CLS], the lowest over the windows
};

// One prediction for each question id, from the logits of all features in order. UsageError for logits that don't match
// the features, NumericalError for logits that are not finite.
std::map<std::string, SquadPrediction> predict_squad(const SquadData& data, const std::vector<SquadFeature>& features,
                                                     const std::vector<SquadLogits>& logits,
                                                     const SquadAnswerOptions& options);

// As the official script compares answers: lower case, without ASCII punctuation, without the words a, an and the,
// white space single.
std::string normalise_answer(std::string_view answer);
// 1 if the two are equal after normalise_answer, else 0.
double exact_match(std::string_view prediction, std::string_view truth);
// Harmonic mean of precision and recall over words after normalise_answer; if either has none, 1 if both have none.
double f1_score(std::string_view prediction, std::string_view truth);

struct SquadScore {
  double exact = 0;  // percent of all questions
  double f1 = 0;     // percent of all questions
  std::int64_t total = 0;
  std::int64_t missing = 0;  // questions without a prediction, which score 0
};

// The best score over each question's answers, averaged over all questions. Answers of which normalise_answer leaves
// nothing don't count, and a question without others has the answer "": so does the official script of 2.0. That of 1.1
// gives the same but for such answers.
SquadScore evaluate_squad(const SquadData& data, const std::map<std::string, std::string>& predictions);

}  // namespace gantry
