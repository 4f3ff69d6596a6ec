#include "gantry/data/text_group_lines.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <span>

#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/line_rows.h"

namespace gantry {
namespace {

using nlohmann::json;
using Files = std::vector<std::filesystem::path>;

constexpr const char* kGroupObject = "an object with anchor and positive, and perhaps negative";
constexpr std::int64_t kTruncatedTexts = 1;  // flag of a row

// The texts of a line. Throws BadLine.
std::vector<std::string> texts_of_line(const std::string& line, const std::string& where) {
  json object;
  if (const auto fault = parse_strict(line, object); !fault.empty()) throw BadLine({where, fault, kGroupObject, ""});
  std::vector<std::string> texts;
  const auto add = [&](const char* key, const json& text) {
    if (!text.is_string()) throw BadLine({where, fmt::format("'{}' is {}", key, text.dump()), "a string", ""});
    texts.push_back(text.get<std::string>());
    if (texts.back().empty())
      throw BadLine({where, fmt::format("'{}' is an empty text", key), "a text", "remove the line"});
  };
  for (const char* key : {"anchor", "positive"}) {
    if (!object.is_object() || !object.contains(key))
      throw BadLine({where, fmt::format("the line has no '{}'", key), kGroupObject, ""});
    add(key, object[key]);
  }
  const json negative = object.value("negative", json::array());
  for (const json& text : negative.is_array() ? negative : json::array({negative})) add("negative", text);
  return texts;
}

// A row has the number of tokens of each text, followed by the tokens.
class GroupEncoder {
 public:
  explicit GroupEncoder(const TextGroupRules& rules) : texts_(rules.texts), text_(rules.text) {}

  LineRow encode(const FoundLine& line) const {
    const std::vector<std::string> texts = texts_of_line(line.text, line.place);
    if (static_cast<std::int64_t>(texts.size()) != texts_)
      throw BadLine({line.place, fmt::format("the line has {} texts", texts.size()),
                     fmt::format("{} as in the first line", texts_), "give each line as many negatives"});
    LineRow row;
    bool was_truncated = false;
    for (const std::string& text : texts) {
      const TokenIds ids = text_.encode(text, std::nullopt, line.place, was_truncated).ids;
      row.tokens.push_back(static_cast<std::int32_t>(ids.size()));
      row.tokens.insert(row.tokens.end(), ids.begin(), ids.end());
    }
    row.flags = was_truncated ? kTruncatedTexts : 0;
    return row;
  }

 private:
  const std::int64_t texts_;
  SurroundedTextEncoder text_;
};

LineRowEncoder group_row_encoder(const TextGroupRules& rules) {
  const auto encoder = std::make_shared<const GroupEncoder>(rules);
  return {.encode = [encoder](const FoundLine& line) { return encoder->encode(line); }, .note = ""};
}

class TextGroupLines final : public Dataset {
 public:
  TextGroupLines(const Files& files, const TextGroupRules& rules, const OpenProgress& progress)
      : rules_(rules), lines_(surrounded_rows_input(files, rules.text, {"groups", rules.texts}), progress, [&] {
          return group_row_encoder(rules);
        }) {}

  const LineRows& lines() const { return lines_; }

  std::int64_t size() const override { return static_cast<std::int64_t>(lines_.rows().size()); }
  std::int64_t sequence_length() const override { return rules_.text.sequence_length; }
  std::vector<SampleEntry> entries() const override { return text_group_entries(rules_); }

  std::string summary() const override {
    std::size_t tokens = 0, longest = 0, truncated = 0;
    for (std::int64_t i = 0; i < size(); ++i) {
      for (const auto& text : texts_of(i)) {
        tokens += text.size();
        longest = std::max(longest, text.size());
      }
      truncated += lines_.rows().row(static_cast<std::size_t>(i)).facts.flags == kTruncatedTexts ? 1 : 0;
    }
    std::string said = fmt::format("{} groups of {} texts with {} tokens (at most {} per text)", size(), rules_.texts,
                                   tokens, longest);
    if (truncated > 0)
      said += fmt::format("; {} have a text truncated to {} tokens", truncated, rules_.text.sequence_length);
    if (const std::string skipped = lines_.skipped_in_words(); !skipped.empty()) said += "; " + skipped;
    return said;
  }

  std::vector<SampleToken> tokens_of(std::int64_t index) const override {
    std::vector<SampleToken> tokens;
    std::int64_t number = 0;
    for (const auto& text : texts_of(index)) {
      for (std::size_t place = 0; place < text.size(); ++place)
        tokens.push_back({.id = text[place],
                          .document = number,
                          .position = static_cast<std::int64_t>(place),
                          .why = number == 0   ? "anchor"
                                 : number == 1 ? "positive"
                                               : "negative"});
      ++number;
    }
    return tokens;
  }

  void read(std::int64_t index, std::int64_t* row) const override {
    const std::int64_t length = rules_.text.sequence_length, all = rules_.texts * length;
    std::fill_n(row, all, rules_.text.padding);
    std::fill_n(row + all, all, 0);
    std::int64_t* ids = row;
    for (const auto& text : texts_of(index)) {
      std::ranges::copy(text, ids);
      std::fill_n(ids + all, text.size(), 1);
      ids += length;
    }
  }

 private:
  std::vector<std::span<const std::int32_t>> texts_of(std::int64_t index) const {
    std::span<const std::int32_t> row = lines_.rows().row(static_cast<std::size_t>(index)).tokens;
    std::vector<std::span<const std::int32_t>> texts;
    while (!row.empty()) {
      const auto count = static_cast<std::size_t>(row.front());
      texts.push_back(row.subspan(1, count));
      row = row.subspan(1 + count);
    }
    return texts;
  }

  TextGroupRules rules_;
  LineRows lines_;
};

}  // namespace

std::vector<SampleEntry> text_group_entries(const TextGroupRules& rules) {
  const std::vector<std::int64_t> shape = {rules.texts, rules.text.sequence_length};
  const std::int64_t all = shape[0] * shape[1];
  return {{.name = "input_ids", .length = all, .shape = shape},
          {.name = "attention_mask", .first = all, .length = all, .shape = shape}};
}

std::unique_ptr<Dataset> open_text_group_lines(const Files& files, const TextGroupRules& rules,
                                               const std::string& place, const OpenProgress& progress) {
  auto groups = std::make_unique<TextGroupLines>(files, rules, progress);
  groups->lines().require_rows(place, kGroupObject);
  return groups;
}

std::int64_t texts_of_first_line(const Files& files) {
  FoundLine line;
  if (!FoundLines(files).next(line)) return 2;
  try {
    return static_cast<std::int64_t>(texts_of_line(line.text, line.place).size());
  } catch (const BadLine&) {
    return 2;
  }
}

}  // namespace gantry
