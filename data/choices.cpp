#include "gantry/data/choices.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr const char* kQuestion = "{\"context\": string, \"choices\": [strings], \"answer\": number from 0}";

std::int64_t characters_in(const std::string& text) {
  return std::ranges::count_if(text, [](unsigned char byte) { return (byte & 0xC0) != 0x80; });
}

// Returns the fault of the question; "" if there is none.
std::string question_fault(const json& question) {
  if (!question.is_object()) return "the line is not a JSON object";
  if (!question.contains("context") || !question["context"].is_string()) return "the question has no context";
  if (question.contains("delimiter") && !question["delimiter"].is_string()) return "the delimiter is not a string";
  if (!question.contains("choices") || !question["choices"].is_array() || question["choices"].empty())
    return "the question has no choices";
  for (const auto& choice : question["choices"])
    if (!choice.is_string() || choice.get<std::string>().empty()) return "a choice is not a string, or is empty";
  const auto answer = question.contains("answer") ? count_in(question["answer"]) : std::nullopt;
  if (!answer) return "the question has no answer";
  if (*answer >= static_cast<std::int64_t>(question["choices"].size()))
    return fmt::format("the answer is {}, but there are {} choices, counted from 0", *answer,
                       question["choices"].size());
  return "";
}

}  // namespace

ChoiceSamples::ChoiceSamples(const std::string& path, const std::string& tokenizer, const TextEnds& ends,
                             std::int64_t sequence_length, std::int64_t vocabulary)
    : tokenizer_(load_tokenizer(tokenizer)),
      before_(ends_of_prompt(*tokenizer_, ends).before),
      length_(sequence_length),
      vocabulary_(vocabulary) {
  std::ifstream stream = open_for_reading(path);
  if (!stream) throw InputError({"evaluation.choices " + path, "the file cannot be read", "a file of JSON lines", ""});
  std::int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string::npos) add_question(line, fmt::format("{}:{}", path, number));
  }
  if (questions_.empty()) throw InputError({"evaluation.choices " + path, "the file has no questions", kQuestion, ""});
}

void ChoiceSamples::add_question(const std::string& line, const std::string& where) {
  json question;
  if (const auto fault = parse_strict(line, question); !fault.empty()) throw InputError({where, fault, kQuestion, ""});
  if (const std::string fault = question_fault(question); !fault.empty())
    throw InputError({where, fault, kQuestion, ""});
  ChoiceQuestion added{.first = size(), .lengths = {}, .answer = question["answer"]};
  const std::string delimiter = question.value("delimiter", " ");
  for (const std::string choice : question["choices"]) {
    added.lengths.push_back(characters_in(choice));
    samples_.push_back(encode(question["context"], delimiter + choice, where));
  }
  questions_.push_back(std::move(added));
}

std::int64_t ChoiceSamples::first_token(const std::string& where) const {
  const auto special = tokenizer_->special();
  const auto first = special.begin ? special.begin : special.end;
  if (!first)
    throw InputError({where,
                      "the context is empty, and the tokenizer has no beginning-of-sequence or end-of-sequence token",
                      "a context", "add a context"});
  return *first;
}

ChoiceSamples::Sample ChoiceSamples::encode(std::string context, std::string continuation,
                                            const std::string& where) const {
  const auto end = context.find_last_not_of(" \t\n\r\f\v");
  const std::size_t kept = end == std::string::npos ? 0 : end + 1;
  continuation = context.substr(kept) + continuation;
  context.resize(kept);
  TokenIds before = before_;
  if (before.empty() && context.empty()) before.push_back(first_token(where));
  const auto tokens_of = [&](const std::string& text) {
    TokenIds ids = tokenizer_->encode(text);
    surround(ids, {before, {}});
    return ids;
  };
  const std::size_t of_context = tokens_of(context).size();
  Sample sample{.tokens = tokens_of(context + continuation)};
  if (sample.tokens.size() <= of_context)
    throw InputError({where, "a choice adds no token to the context", "text that adds at least one token", ""});
  sample.scored = static_cast<std::int64_t>(sample.tokens.size() - of_context);
  const auto most = static_cast<std::size_t>(length_ + 1);
  if (sample.tokens.size() > most)
    sample.tokens.erase(sample.tokens.begin(), sample.tokens.end() - static_cast<std::ptrdiff_t>(most));
  sample.scored = std::min(sample.scored, static_cast<std::int64_t>(sample.tokens.size()) - 1);
  for (const auto id : sample.tokens)
    if (id >= vocabulary_)
      throw InputError({where, fmt::format("token {} is outside the model's vocabulary of {}", id, vocabulary_),
                        fmt::format("0 to {}", vocabulary_ - 1), "check that data.tokenizer is the model's own"});
  return sample;
}

void ChoiceSamples::read(std::int64_t index, std::int64_t* numbers) const {
  const Sample& sample = samples_[static_cast<std::size_t>(index)];
  const auto places = static_cast<std::int64_t>(sample.tokens.size()) - 1;
  std::fill_n(numbers, length_, 0);
  std::fill_n(numbers + length_, length_, kNotCounted);
  std::copy_n(sample.tokens.begin(), places, numbers);
  std::copy_n(sample.tokens.end() - sample.scored, sample.scored, numbers + length_ + places - sample.scored);
}

}  // namespace gantry
