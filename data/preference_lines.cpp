#include "gantry/data/preference_lines.h"

#include <algorithm>
#include <bit>
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

constexpr const char* kPreferenceObject = "an object with prompt, chosen and rejected: texts, or lists of messages";

Json preference_object(const std::string& line, const std::string& where) {
  Json object;
  if (const auto fault = parse_strict(line, object); !fault.empty())
    throw BadLine({where, fault, kPreferenceObject, ""});
  for (const char* key : {"chosen", "rejected"})
    if (!object.is_object() || !object.contains(key))
      throw BadLine({where, fmt::format("the line has no '{}'", key), kPreferenceObject, ""});
  for (const char* key : {"chosen", "rejected"}) {
    if (!object[key].is_string() && !object[key].is_array())
      throw BadLine({where, fmt::format("'{}' is neither a text nor a list of messages", key), kPreferenceObject, ""});
    if (object[key].empty() || object[key] == "")
      throw BadLine({where, fmt::format("'{}' is empty", key), kPreferenceObject, "remove the line"});
  }
  if (object["chosen"] == object["rejected"])
    throw BadLine({where, "chosen and rejected are equal", "two different completions", "remove the line"});
  if (object["chosen"].is_string() && !object.contains("prompt"))
    throw BadLine({where, "the line has no 'prompt'", kPreferenceObject, ""});
  const auto is_kind_of_chosen = [&](const char* key) {
    return !object.contains(key) || object[key].type() == object["chosen"].type();
  };
  if (!is_kind_of_chosen("prompt") || !is_kind_of_chosen("rejected"))
    throw BadLine({where, "the line has texts and lists of messages", kPreferenceObject, ""});
  return object;
}

struct PreferenceTokens {
  LineTokens chosen, rejected;
};

class PreferenceEncoder {
 public:
  PreferenceEncoder(const LineRules& rules, PairForm form)
      : sequence_length_(rules.sequence_length),
        text_length_(rules.text_length > 0 ? rules.text_length : rules.sequence_length),
        left_out_(form == PairForm::kScores ? 0 : 1),
        encoder_(rules) {}

  PreferenceTokens encode(const Json& object, const std::string& where, bool for_display = false) const {
    PreferenceTokens pair{encoder_.encode(completion_line(object, "chosen"), where, for_display),
                          encoder_.encode(completion_line(object, "rejected"), where, for_display)};
    const std::size_t places = pair.chosen.tokens.size() + pair.rejected.tokens.size() - 2 * left_out_;
    if (places > static_cast<std::size_t>(sequence_length_))
      throw BadLine({where,
                     fmt::format("the chosen text has {} tokens and the rejected one {}, {}{} together, more than "
                                 "data.sequence_length {}",
                                 pair.chosen.tokens.size(), pair.rejected.tokens.size(),
                                 left_out_ > 0 ? "without their last ones " : "", places, sequence_length_),
                     "a pair that fits into a sample", "raise data.sequence_length, or set data.bad_lines: skip"});
    require_fitting_text(pair.chosen, "chosen", where);
    require_fitting_text(pair.rejected, "rejected", where);
    require_images_in_prompt(pair.chosen, "chosen", where);
    require_images_in_prompt(pair.rejected, "rejected", where);
    return pair;
  }

  std::string note() const { return encoder_.chat_template(); }

 private:
  void require_fitting_text(const LineTokens& text, const char* name, const std::string& where) const {
    if (text.tokens.size() - left_out_ <= static_cast<std::size_t>(text_length_)) return;
    throw BadLine({where,
                   fmt::format("the {} text has {} tokens, more than the model's {} positions", name,
                               text.tokens.size(), text_length_),
                   "texts that fit into the model's positions", "shorten it, or set data.bad_lines: skip"});
  }

  std::int64_t sequence_length_, text_length_;
  std::size_t left_out_;  // tokens of a text that are labels only
  LineEncoder encoder_;
};

float margin_of(const Json& object, const std::string& where) {
  const auto margin = object.find("margin");
  if (margin == object.end() || margin->is_null()) return 0;
  if (!margin->is_number()) throw BadLine({where, "the margin is " + margin->dump(), "a number", "correct the line"});
  return margin->get<float>();
}

// The margin is in the lower 32 bits of the flags of a row, and the number of images in the others.
constexpr int kMarginBits = 32;

// Rows of texts that an earlier version has stored have the sign of the margin there.
std::size_t images_in_pair(const EncodedRow& row) {
  return static_cast<std::size_t>(std::max<std::int64_t>(0, row.facts.flags >> kMarginBits));
}

// A row is the tokens of both texts, and the ranges of their completions, those of the images in the texts, and the
// rejected text, before the records of the images.
LineRow row_of_pair(const PreferenceTokens& pair, float margin) {
  LineRow row;
  std::vector<TokenRange> places;
  std::vector<LineImage> images;
  for (const LineTokens* text : {&pair.chosen, &pair.rejected}) {
    const auto begin = static_cast<std::int32_t>(row.tokens.size());
    const auto add = [&](std::int64_t first, std::int64_t second, std::vector<TokenRange>& ranges) {
      ranges.push_back({begin + static_cast<std::int32_t>(first), begin + static_cast<std::int32_t>(second)});
    };
    row.tokens.insert(row.tokens.end(), text->tokens.begin(), text->tokens.end());
    for (const auto& [first, second] : text->trained) add(std::max<std::int64_t>(1, first), second, row.ranges);
    for (const LineImage& image : text->images) add(image.first, image.second, places);
    images.insert(images.end(), text->images.begin(), text->images.end());
    if (text == &pair.rejected) add(0, static_cast<std::int64_t>(text->tokens.size()), places);
  }
  row.ranges.insert(row.ranges.end(), places.begin(), places.end());
  append_images(images, row);
  row.flags = std::bit_cast<std::uint32_t>(margin) + (static_cast<std::int64_t>(images.size()) << kMarginBits);
  return row;
}

LineRowEncoder preference_encoder(const LineRules& rules, PairForm form) {
  const auto encoder = std::make_shared<const PreferenceEncoder>(rules, form);
  return {.encode =
              [encoder, form](const FoundLine& line) {
                const Json object = preference_object(line.text, line.place);
                const float margin = form == PairForm::kScores ? margin_of(object, line.place) : 0;
                return row_of_pair(encoder->encode(object, line.place), margin);
              },
          .note = encoder->note()};
}

LineRowsInput preference_input(const Files& files, const LineRules& rules, PairForm form) {
  return rows_input(form == PairForm::kScores ? "scored preferences" : "preferences", files, rules);
}

// Writes a pair into the numbers of a sample.
class PairWriter {
 public:
  PairWriter(const EncodedRow& row, std::size_t images, std::int64_t length, std::int64_t* numbers)
      : row_(row),
        completions_(row.ranges.first(row.ranges.size() - 1 - images)),
        images_(row.ranges.subspan(completions_.size(), images)),
        length_(length),
        ids_(numbers),
        second_(row.ranges.back().first),
        all_(static_cast<std::int64_t>(row.tokens.size())) {
    std::fill_n(ids_, length, 0);
  }

  // A text of n tokens has n - `left_out` places.
  void texts(std::int64_t* documents, std::int64_t left_out) {
    std::fill_n(documents, length_, 2);
    std::copy_n(row_.tokens.begin(), second_ - left_out, ids_);
    std::copy_n(row_.tokens.begin() + second_, all_ - second_ - left_out, ids_ + second_ - left_out);
    std::fill_n(documents, second_ - left_out, 0);
    std::fill_n(documents + second_ - left_out, all_ - second_ - left_out, 1);
  }

  void completion_labels(std::int64_t* labels) const {
    std::fill_n(labels, length_, kNotCounted);
    for (const auto& [first, last] : completions_)
      for (std::int64_t token = first; token < last; ++token)
        labels[token - (token < second_ ? 1 : 2)] = row_.tokens[static_cast<std::size_t>(token)];
  }

  // Writes the labels of the tokens of the chosen text that have no completion label, except for those of images.
  void prompt_labels(const std::int64_t* labels, std::int64_t* prompts) const {
    std::fill_n(prompts, length_, kNotCounted);
    for (std::int64_t token = 1; token < second_; ++token)
      if (labels[token - 1] == kNotCounted) prompts[token - 1] = row_.tokens[static_cast<std::size_t>(token)];
    for (const auto& [first, last] : images_)
      if (last <= second_) std::fill(prompts + std::max(1, first) - 1, prompts + last - 1, kNotCounted);
  }

  void last_tokens(std::int64_t* places) const {
    places[0] = second_ - 1;
    places[1] = all_ - 1;
  }

 private:
  const EncodedRow& row_;
  std::span<const TokenRange> completions_, images_;  // images_: places in the texts
  std::int64_t length_;
  std::int64_t* ids_;
  std::int64_t second_, all_;  // the first token of the rejected text; the number of tokens
};

class PreferenceLines final : public Dataset {
 public:
  PreferenceLines(const Files& files, const LineRules& rules, PairForm form, bool held_out,
                  const OpenProgress& progress)
      : rules_(rules),
        form_(form),
        held_out_(held_out),
        lines_(preference_input(files, rules, form), progress, [&] { return preference_encoder(rules, form); }) {}

  const LineRows& lines() const { return lines_; }
  RowImages images_of(std::int64_t sample) const {
    const EncodedRow row = lines_.rows().row(static_cast<std::size_t>(sample));
    return {images_of_row(row, images_in_pair(row)), lines_.place_of(row.facts)};
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(lines_.rows().size()); }
  std::int64_t sequence_length() const override { return rules_.sequence_length; }
  std::vector<SampleEntry> entries() const override { return preference_entries(form_, rules_.sequence_length); }
  std::string summary() const override { return lines_.in_words("pairs of completions", "pair", images_in_pair); }

  std::vector<SampleToken> tokens_of(std::int64_t sample) const override {
    const auto row = static_cast<std::size_t>(sample);
    const FoundLine line = lines_.lines_of(row, row + 1).front();
    const PreferenceTokens pair =
        PreferenceEncoder(rules_, form_)
            .encode(preference_object(line.text, line.place), line.place, /*for_display=*/true);
    std::vector<SampleToken> tokens;
    append_tokens(pair.chosen, 0, /*is_pair=*/false, tokens);
    append_tokens(pair.rejected, 1, /*is_pair=*/false, tokens);
    return tokens;
  }

  void read_numbers(std::int64_t sample, const NumberRow& out) const override {
    const std::int64_t length = rules_.sequence_length;
    const EncodedRow with_records = lines_.rows().row(static_cast<std::size_t>(sample));
    const std::size_t images = images_in_pair(with_records);
    const EncodedRow row = without_images(with_records, images);
    if (out.type() == NumberType::kFloat32) {
      *out.as<float>() = std::bit_cast<float>(static_cast<std::int32_t>(row.facts.flags));
      return;
    }
    auto* numbers = out.as<std::int64_t>();
    const std::int64_t number = held_out_ ? -1 - sample : sample;
    PairWriter pair(row, images, length, numbers);
    if (form_ == PairForm::kScores) {
      pair.texts(numbers + length, 0);
      pair.last_tokens(numbers + 2 * length);
      numbers[2 * length + 2] = number;
      return;
    }
    pair.texts(numbers + 2 * length, 1);
    pair.completion_labels(numbers + length);
    numbers[3 * length] = number;
    if (form_ == PairForm::kFullTexts) pair.prompt_labels(numbers + length, numbers + 3 * length + 1);
  }

 private:
  LineRules rules_;
  PairForm form_;
  bool held_out_;
  LineRows lines_;
};

}  // namespace

std::vector<SampleEntry> preference_entries(PairForm form, std::int64_t sequence_length) {
  if (form == PairForm::kScores)
    return {{"input_ids", 0, sequence_length},
            {"document_ids", sequence_length, sequence_length},
            {"pooled_tokens", 2 * sequence_length, 2},
            {"sample_numbers", 2 * sequence_length + 2},
            {"margins", 0, 0, NumberType::kFloat32}};
  std::vector<SampleEntry> entries = packed_entries(sequence_length);
  entries.push_back({"sample_numbers", 3 * sequence_length});
  if (form == PairForm::kFullTexts) entries.push_back({"prompt_labels", 3 * sequence_length + 1, sequence_length});
  return entries;
}

std::unique_ptr<Dataset> open_preference_lines(const Files& files, const LineRules& rules, PairForm form, bool held_out,
                                               const std::string& place, const OpenProgress& progress) {
  auto pairs = std::make_unique<PreferenceLines>(files, rules, form, held_out, progress);
  pairs->lines().require_rows(place, kPreferenceObject);
  if (!rules.images) return pairs;
  const auto images_of = [&lines = *pairs](std::int64_t sample) { return std::vector{lines.images_of(sample)}; };
  return with_images(std::move(pairs), rules.images, images_of);
}

}  // namespace gantry
