// SQuAD's exact match and F1. Words and white space are those of the official script's language, Python.
#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <unicode/uchar.h>
#include <unicode/ustring.h>
#include <unicode/utf16.h>
#include <unordered_map>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/squad_answers.h"

namespace gantry {
namespace {

// Converts the full text at once, so that a sigma at the end of a word becomes a final sigma.
std::u16string lower_case(std::string_view text) {
  const std::u16string units = utf16_of(text);
  std::u16string lower(3 * units.size() + 1, u'\0');  // a unit becomes three at most
  UErrorCode status = U_ZERO_ERROR;
  const std::int32_t length = u_strToLower(lower.data(), static_cast<std::int32_t>(lower.size()), units.data(),
                                           static_cast<std::int32_t>(units.size()), "", &status);
  if (U_FAILURE(status)) throw InternalError(fmt::format("ICU has no lower case: {}", u_errorName(status)));
  lower.resize(static_cast<std::size_t>(length));
  return lower;
}

bool is_ascii_punctuation(UChar32 c) { return c > ' ' && c < 0x7F && !u_isalnum(c); }

bool is_space(UChar32 c) { return u_isUWhiteSpace(c) || (0x1C <= c && c <= 0x1F); }

// Returns true for letters and characters with a numeric value. An article does not count as one if it
// touches them.
bool is_in_word(UChar32 c) { return u_isalpha(c) || u_getNumericValue(c) != U_NO_NUMERIC_VALUE; }

std::vector<std::string> words_of(const std::string& normalised) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < normalised.size();) {
    const std::size_t end = std::min(normalised.find(' ', at), normalised.size());
    words.push_back(normalised.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

double best_over(const std::vector<std::string>& truths, const std::string& prediction, auto score) {
  double best = 0;
  for (const auto& truth : truths) best = std::max(best, score(prediction, truth));
  return best;
}

}  // namespace

std::string normalise_answer(std::string_view answer) {
  std::string normalised;
  std::string run;  // consecutive characters that are all in a word, or all outside of words
  bool is_word = false;
  const auto finish_run = [&] {
    const bool is_article = is_word && (run == "a" || run == "an" || run == "the");
    const std::string_view kept = is_article ? std::string_view(" ") : std::string_view(run);
    for (const char byte : kept)
      if (byte != ' ' || (!normalised.empty() && normalised.back() != ' ')) normalised += byte;
    run.clear();
  };
  const std::u16string text = lower_case(answer);
  const auto length = static_cast<std::int32_t>(text.size());
  for (std::int32_t i = 0; i < length;) {
    UChar32 c;
    U16_NEXT(text.data(), i, length, c);
    if (is_ascii_punctuation(c)) continue;
    if (is_in_word(c) != is_word) finish_run();
    is_word = is_in_word(c);
    append_utf8(run, is_space(c) ? U' ' : static_cast<char32_t>(c));
  }
  finish_run();
  if (normalised.ends_with(' ')) normalised.pop_back();
  return normalised;
}

double exact_match(std::string_view prediction, std::string_view truth) {
  return normalise_answer(prediction) == normalise_answer(truth) ? 1 : 0;
}

double f1_score(std::string_view prediction, std::string_view truth) {
  const auto predicted = words_of(normalise_answer(prediction)), wanted = words_of(normalise_answer(truth));
  if (predicted.empty() || wanted.empty()) return predicted.empty() && wanted.empty() ? 1 : 0;
  std::unordered_map<std::string, int> left;
  for (const auto& word : wanted) ++left[word];
  const auto common = std::count_if(predicted.begin(), predicted.end(), [&](const auto& w) { return left[w]-- > 0; });
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(predicted.size());
  const double recall = static_cast<double>(common) / static_cast<double>(wanted.size());
  return 2 * precision * recall / (precision + recall);
}

SquadScore evaluate_squad(const SquadData& data, const std::map<std::string, std::string>& predictions) {
  SquadScore score;
  for (const auto& example : data.examples) {
    ++score.total;
    const auto found = predictions.find(example.id);
    if (found == predictions.end()) {
      ++score.missing;
      continue;
    }
    std::vector<std::string> truths;
    for (const auto& answer : example.answers)
      if (!normalise_answer(answer.text).empty()) truths.push_back(answer.text);
    if (truths.empty()) truths.emplace_back();
    score.exact += best_over(truths, found->second, exact_match);
    score.f1 += best_over(truths, found->second, f1_score);
  }
  if (score.total > 0) {
    score.exact *= 100.0 / static_cast<double>(score.total);
    score.f1 *= 100.0 / static_cast<double>(score.total);
  }
  return score;
}

}  // namespace gantry
