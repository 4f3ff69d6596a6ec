#include "gantry/data/preference_lines.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/core/strict_json.h"

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

// The line of JSON that has one completion of the pair only.
std::string line_of(const Json& object, const char* completion) {
  Json line = object;
  line.erase("chosen");
  line.erase("rejected");
  if (object[completion].is_string()) {
    line["completion"] = object[completion];
    return line.dump();
  }
  Json messages = object.contains("prompt") ? object["prompt"] : Json::array();
  messages.insert(messages.end(), object[completion].begin(), object[completion].end());
  line.erase("prompt");
  line["messages"] = std::move(messages);
  return line.dump();
}

struct PreferenceTokens {
  LineTokens chosen, rejected;
};

class PreferenceEncoder {
 public:
  explicit PreferenceEncoder(const LineRules& rules) : sequence_length_(rules.sequence_length), encoder_(rules) {}

  PreferenceTokens encode(const std::string& line, const std::string& where, bool for_display = false) const {
    const Json object = preference_object(line, where);
    PreferenceTokens pair{encoder_.encode(line_of(object, "chosen"), where, for_display),
                          encoder_.encode(line_of(object, "rejected"), where, for_display)};
    const std::int64_t places = pair.chosen.places() + pair.rejected.places();
    if (places > sequence_length_)
      throw BadLine({where,
                     fmt::format("the chosen text has {} tokens and the rejected one {}, without their last ones {} "
                                 "together, more than data.sequence_length {}",
                                 pair.chosen.tokens.size(), pair.rejected.tokens.size(), places, sequence_length_),
                     "a pair that fits into a sample", "raise data.sequence_length, or set data.bad_lines: skip"});
    return pair;
  }

  std::string note() const { return encoder_.chat_template(); }

 private:
  std::int64_t sequence_length_;
  LineEncoder encoder_;
};

// A row is the tokens of both texts and the ranges of their completions; the last range is the rejected text.
LineRow row_of_pair(const PreferenceTokens& pair) {
  LineRow row;
  for (const LineTokens* text : {&pair.chosen, &pair.rejected}) {
    const auto begin = static_cast<std::int32_t>(row.tokens.size());
    row.tokens.insert(row.tokens.end(), text->tokens.begin(), text->tokens.end());
    for (const auto& [first, second] : text->trained)
      row.ranges.push_back({begin + static_cast<std::int32_t>(std::max<std::int64_t>(1, first)),
                            begin + static_cast<std::int32_t>(second)});
    if (text == &pair.rejected) row.ranges.push_back({begin, static_cast<std::int32_t>(row.tokens.size())});
  }
  return row;
}

LineRowEncoder preference_encoder(const LineRules& rules) {
  const auto encoder = std::make_shared<const PreferenceEncoder>(rules);
  return {.encode = [encoder](const FoundLine& line) { return row_of_pair(encoder->encode(line.text, line.place)); },
          .note = encoder->note()};
}

class PreferenceLines final : public Dataset {
 public:
  PreferenceLines(const Files& files, const LineRules& rules, bool held_out, const OpenProgress& progress)
      : rules_(rules),
        held_out_(held_out),
        lines_(rows_input("preferences", files, rules), progress, [&] { return preference_encoder(rules); }) {}

  const LineRows& lines() const { return lines_; }

  std::int64_t size() const override { return static_cast<std::int64_t>(lines_.rows().size()); }
  std::int64_t sequence_length() const override { return rules_.sequence_length; }
  std::vector<SampleEntry> entries() const override { return preference_entries(rules_.sequence_length); }

  std::string summary() const override {
    std::size_t tokens = 0, longest = 0;
    for (std::size_t i = 0; i < lines_.rows().size(); ++i) {
      const std::size_t count = lines_.rows().row(i).tokens.size();
      tokens += count;
      longest = std::max(longest, count);
    }
    std::string said = fmt::format("{} pairs of completions with {} tokens ({:.1f} per pair, at most {})", size(),
                                   tokens, static_cast<double>(tokens) / static_cast<double>(size()), longest);
    if (const std::string skipped = lines_.skipped_in_words(); !skipped.empty()) said += "; " + skipped;
    return said;
  }

  std::vector<SampleToken> tokens_of(std::int64_t sample) const override {
    const auto row = static_cast<std::size_t>(sample);
    const FoundLine line = lines_.lines_of(row, row + 1).front();
    const PreferenceTokens pair = PreferenceEncoder(rules_).encode(line.text, line.place, /*for_display=*/true);
    std::vector<SampleToken> tokens;
    append_tokens(pair.chosen, 0, /*is_pair=*/false, tokens);
    append_tokens(pair.rejected, 1, /*is_pair=*/false, tokens);
    return tokens;
  }

  void read(std::int64_t sample, std::int64_t* numbers) const override {
    const std::int64_t length = rules_.sequence_length;
    const EncodedRow row = lines_.rows().row(static_cast<std::size_t>(sample));
    const std::int64_t second = row.ranges.back().first, all = static_cast<std::int64_t>(row.tokens.size());
    std::int64_t *ids = numbers, *labels = ids + length, *documents = labels + length;
    std::fill_n(ids, length, 0);
    std::fill_n(labels, length, kNotCounted);
    std::fill_n(documents, length, 2);
    // A text of n tokens has n - 1 places: the last token is a label only.
    std::copy_n(row.tokens.begin(), second - 1, ids);
    std::copy_n(row.tokens.begin() + second, all - second - 1, ids + second - 1);
    std::fill_n(documents, second - 1, 0);
    std::fill_n(documents + second - 1, all - second - 1, 1);
    for (const auto& [first, last] : row.ranges.first(row.ranges.size() - 1))
      for (std::int64_t token = first; token < last; ++token)
        labels[token - (token < second ? 1 : 2)] = row.tokens[static_cast<std::size_t>(token)];
    documents[length] = held_out_ ? -1 - sample : sample;
  }

 private:
  LineRules rules_;
  bool held_out_;
  LineRows lines_;
};

}  // namespace

std::vector<SampleEntry> preference_entries(std::int64_t sequence_length) {
  std::vector<SampleEntry> entries = packed_entries(sequence_length);
  entries.push_back({"sample_numbers", 3 * sequence_length});
  return entries;
}

std::unique_ptr<Dataset> open_preference_lines(const Files& files, const LineRules& rules, bool held_out,
                                               const std::string& place, const OpenProgress& progress) {
  auto pairs = std::make_unique<PreferenceLines>(files, rules, held_out, progress);
  pairs->lines().require_rows(place, kPreferenceObject);
  return pairs;
}

}  // namespace gantry
