#include "gantry/data/judged_lines.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/core/io/strict_json.h"
#include "gantry/data/completion_line.h"
#include "gantry/data/image_samples.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;  // chat templates need the members in their order
using Files = std::vector<std::filesystem::path>;

constexpr const char* kJudgedObject = "an object with prompt, completion (texts, or lists of messages) and label";

Json judged_object(const std::string& line, const std::string& where) {
  Json object;
  if (const auto fault = parse_strict(line, object); !fault.empty()) throw BadLine({where, fault, kJudgedObject, ""});
  for (const char* key : {"prompt", "completion", "label"})
    if (!object.is_object() || !object.contains(key))
      throw BadLine({where, fmt::format("the line has no '{}'", key), kJudgedObject, ""});
  for (const char* key : {"prompt", "completion"})
    if (!object[key].is_string() && !object[key].is_array())
      throw BadLine({where, fmt::format("'{}' is neither a text nor a list of messages", key), kJudgedObject, ""});
  if (object["prompt"].type() != object["completion"].type())
    throw BadLine({where, "the line has texts and lists of messages", kJudgedObject, ""});
  if (object["completion"].empty() || object["completion"] == "")
    throw BadLine({where, "'completion' is empty", kJudgedObject, "remove the line"});
  if (!object["label"].is_boolean() && object["label"] != 0 && object["label"] != 1)
    throw BadLine({where, "the label is " + object["label"].dump(), "true (desirable) or false", "correct the line"});
  return object;
}

bool is_desirable(const Json& object) { return object["label"] == true || object["label"] == 1; }

LineTokens encode_judged(const LineEncoder& encoder, const LineRules& rules, const Json& object,
                         const std::string& where, bool for_display = false) {
  LineTokens text = encoder.encode(completion_line(object, "completion"), where, for_display);
  if (text.places() > rules.sequence_length)
    throw BadLine({where,
                   fmt::format("the text has {} tokens, more than data.sequence_length {} + 1", text.tokens.size(),
                               rules.sequence_length),
                   "a text that fits into a sample", "raise data.sequence_length, or set data.bad_lines: skip"});
  require_images_in_prompt(text, "completion", where);
  return text;
}

// Flags of a row. The others are the number of its images.
constexpr std::int64_t kIsDesirable = 1, kImageOfJudged = 2;

LineRowEncoder judged_encoder(const LineRules& rules) {
  const auto encoder = std::make_shared<const LineEncoder>(rules);
  return {.encode =
              [encoder, rules](const FoundLine& line) {
                const Json object = judged_object(line.text, line.place);
                const LineTokens text = encode_judged(*encoder, rules, object, line.place);
                LineRow row{.tokens = text.tokens,
                            .flags = (is_desirable(object) ? kIsDesirable : 0) +
                                     kImageOfJudged * static_cast<std::int64_t>(text.images.size())};
                for (const auto& [first, second] : text.trained)
                  row.ranges.push_back(
                      {static_cast<std::int32_t>(std::max<std::int64_t>(1, first)), static_cast<std::int32_t>(second)});
                append_images(text.images, row);
                return row;
              },
          .note = encoder->chat_template()};
}

// Writes tokens and their labels to the places of a sample, as far as they fit.
struct TextWriter {
  std::int64_t length;
  std::int64_t *ids, *labels;

  void clear() const {
    std::fill_n(ids, length, 0);
    std::fill_n(labels, length, kNotCounted);
  }
  // Tokens [first, last) become the tokens from number `at` on. A token is the label of the place before it.
  void write(const EncodedRow& row, std::int64_t first, std::int64_t last, std::int64_t at) const {
    for (std::int64_t token = first; token < last; ++token, ++at) {
      const auto id = row.tokens[static_cast<std::size_t>(token)];
      if (at < length) ids[at] = id;
      const bool counts = std::ranges::any_of(
          row.ranges, [&](const TokenRange& range) { return range.first <= token && token < range.second; });
      if (counts && at > 0 && at <= length) labels[at - 1] = id;
    }
  }
  // The last token of a text is a label only.
  void end(std::int64_t tokens) const {
    if (tokens <= length) ids[tokens - 1] = 0;
  }
};

class JudgedLines final : public Dataset {
 public:
  JudgedLines(const Files& files, const LineRules& rules, bool held_out, const OpenProgress& progress)
      : rules_(rules),
        held_out_(held_out),
        lines_(rows_input("judged completions", files, rules), progress, [&] { return judged_encoder(rules); }) {}

  const LineRows& lines() const { return lines_; }
  RowImages images_of(std::int64_t sample) const {
    const EncodedRow row = lines_.rows().row(static_cast<std::size_t>(sample));
    return {images_of_row(row, count_images(row)), lines_.place_of(row.facts)};
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(lines_.rows().size()); }
  std::int64_t sequence_length() const override { return rules_.sequence_length; }
  std::vector<SampleEntry> entries() const override { return judged_entries(rules_.sequence_length); }
  std::string summary() const override { return lines_.in_words("completions", "completion", count_images); }

  std::vector<SampleToken> tokens_of(std::int64_t sample) const override {
    const auto row = static_cast<std::size_t>(sample);
    const FoundLine line = lines_.lines_of(row, row + 1).front();
    std::vector<SampleToken> tokens;
    append_tokens(encode_judged(LineEncoder(rules_), rules_, judged_object(line.text, line.place), line.place,
                                /*for_display=*/true),
                  0, /*is_pair=*/false, tokens);
    return tokens;
  }

  std::string label_of(std::int64_t sample) const override {
    return (row_of(sample).facts.flags & kIsDesirable) != 0 ? "desirable" : "undesirable";
  }

  void read(std::int64_t sample, std::int64_t* numbers) const override {
    const std::int64_t length = rules_.sequence_length;
    const EncodedRow own = row_of(sample), other = row_of(sample > 0 ? sample - 1 : size() - 1);
    const auto tokens_of_row = [](const EncodedRow& row) { return static_cast<std::int64_t>(row.tokens.size()); };
    const TextWriter text{length, numbers, numbers + length};
    text.clear();
    text.write(own, 0, tokens_of_row(own), 0);
    text.end(tokens_of_row(own));
    const std::int64_t prompt = own.ranges.front().first, completion = other.ranges.front().first;
    const TextWriter mixed{length, numbers + 2 * length, numbers + 3 * length};
    mixed.clear();
    mixed.write(own, 0, prompt, 0);
    mixed.write(other, completion, tokens_of_row(other), prompt);
    mixed.end(prompt + tokens_of_row(other) - completion);
    numbers[4 * length] = own.facts.flags & kIsDesirable;
    numbers[4 * length + 1] = held_out_ ? -1 - sample : sample;
  }

 private:
  static std::size_t count_images(const EncodedRow& row) {
    return static_cast<std::size_t>(row.facts.flags / kImageOfJudged);
  }
  EncodedRow row_of(std::int64_t sample) const {
    const EncodedRow row = lines_.rows().row(static_cast<std::size_t>(sample));
    return without_images(row, count_images(row));
  }

  LineRules rules_;
  bool held_out_;
  LineRows lines_;
};

}  // namespace

std::vector<SampleEntry> judged_entries(std::int64_t sequence_length) {
  const std::int64_t s = sequence_length;
  return {{"input_ids", 0, s},     {"labels", s, s},     {"kl_input_ids", 2 * s, s},
          {"kl_labels", 3 * s, s}, {"desirable", 4 * s}, {"sample_numbers", 4 * s + 1}};
}

std::unique_ptr<Dataset> open_judged_lines(const Files& files, const LineRules& rules, bool held_out,
                                           const std::string& place, const OpenProgress& progress) {
  auto judged = std::make_unique<JudgedLines>(files, rules, held_out, progress);
  judged->lines().require_rows(place, kJudgedObject);
  if (judged->size() < 2)
    throw InputError({place, "there is one completion, but kto compares its prompt with the completion of another line",
                      "at least two lines", "add lines"});
  if (!rules.images) return judged;
  const auto images_of = [&lines = *judged](std::int64_t sample) { return std::vector{lines.images_of(sample)}; };
  return with_images(std::move(judged), rules.images, images_of);
}

}  // namespace gantry
