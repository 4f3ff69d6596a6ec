#include "gantry/data/labelled_lines.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/line_rows.h"

namespace gantry {
namespace {

using nlohmann::json;
using Files = std::vector<std::filesystem::path>;

constexpr const char* kLabelledObject = "an object with text and label, and perhaps text_pair";

// Calls `take` with each line and its place, until it returns false.
template <class Take>
void for_each_line(const Files& files, const Take& take) {
  FoundLines lines(files);
  for (FoundLine line; lines.next(line);)
    if (!take(line.text, line.place)) return;
}

// The label of a line; null if there is none.
json label_of_line(const std::string& line) {
  const json object = json::parse(line, nullptr, false);
  return object.is_object() ? object.value("label", json()) : json();
}

json labelled_object(const std::string& line, const std::string& where) {
  json object;
  if (const auto fault = parse_strict(line, object); !fault.empty()) throw BadLine({where, fault, kLabelledObject, ""});
  for (const char* key : {"text", "label"})
    if (!object.is_object() || !object.contains(key))
      throw BadLine({where, fmt::format("the line has no '{}'", key), kLabelledObject, ""});
  for (const char* key : {"text", "text_pair"})
    if (object.contains(key) && !object[key].is_string())
      throw BadLine({where, fmt::format("'{}' is not a string", key), "a string", ""});
  return object;
}

constexpr std::int64_t kWasShortened = 1;  // flag of a row

// A row is the ids of a text, their types, and the label: the number of a class, or the bits of its float32 numbers.
class LabelledEncoder {
 public:
  explicit LabelledEncoder(const LabelledRules& rules) : rules_(rules), text_(rules.text) {}

  LineRow encode(const json& object, const std::string& where) const {
    std::optional<std::string> second;
    if (object.contains("text_pair")) second = object["text_pair"].get<std::string>();
    bool was_truncated = false;
    const TypedTokens tokens = text_.encode(object["text"].get<std::string>(), second, where, was_truncated);
    LineRow row{.flags = was_truncated ? kWasShortened : 0};
    row.tokens.assign(tokens.ids.begin(), tokens.ids.end());
    row.tokens.insert(row.tokens.end(), tokens.types.begin(), tokens.types.end());
    const json& label = object["label"];
    if (rules_.kind == LabelKind::kClass) {
      row.tokens.push_back(static_cast<std::int32_t>(class_of(label, where)));
      return row;
    }
    for (const float number : rules_.kind == LabelKind::kSeveral ? several_of(label, where) : numbers_of(label, where))
      row.tokens.push_back(std::bit_cast<std::int32_t>(number));
    return row;
  }

 private:
  std::int64_t class_of(const json& label, const std::string& where) const {
    if (label.is_string()) {
      const auto found = std::ranges::find(rules_.classes, label.get<std::string>());
      if (found != rules_.classes.end()) return found - rules_.classes.begin();
      throw BadLine({where, fmt::format("the label '{}' is not a class of the model", label.get<std::string>()),
                     rules_.classes.empty() ? "a number" : fmt::format("{}", fmt::join(rules_.classes, ", ")),
                     "correct it, or set model.config.id2label"});
    }
    if (!label.is_number_integer() || label < 0 || label >= rules_.labels)
      throw BadLine({where, "the label is " + label.dump(),
                     fmt::format("the name of a class, or 0 to {}", rules_.labels - 1),
                     "correct it, or set model.config.num_labels"});
    return label.get<std::int64_t>();
  }

  std::vector<float> several_of(const json& stated, const std::string& where) const {
    // A pair of texts with one label, such as a query and a document, needs no list.
    const json label = rules_.labels == 1 && stated.is_number() ? json::array({stated}) : stated;
    if (!label.is_array()) throw BadLine({where, "the label is " + label.dump(), "a list of classes", ""});
    const bool are_names = std::ranges::all_of(label, [](const json& each) { return each.is_string(); });
    std::vector<float> numbers(static_cast<std::size_t>(rules_.labels), 0);
    if (are_names) {
      for (const json& name : label) numbers[static_cast<std::size_t>(class_of(name, where))] = 1;
      return numbers;
    }
    numbers = numbers_of(label, where);
    for (const float number : numbers)
      if (number != 0 && number != 1)
        throw BadLine({where, "the label is " + label.dump(), "a list of 0 or 1 for each class", ""});
    return numbers;
  }

  std::vector<float> numbers_of(const json& label, const std::string& where) const {
    const json list = label.is_array() ? label : json::array({label});
    const bool are_numbers = std::ranges::all_of(list, [](const json& each) { return each.is_number(); });
    if (!are_numbers || static_cast<std::int64_t>(list.size()) != rules_.labels)
      throw BadLine({where, "the label is " + label.dump(),
                     rules_.labels == 1 ? "a number" : fmt::format("a list of {} numbers", rules_.labels),
                     "correct it, or set model.config.num_labels"});
    return list.get<std::vector<float>>();
  }

  LabelledRules rules_;
  SurroundedTextEncoder text_;
};

LineRowsInput labelled_input(const Files& files, const LabelledRules& rules) {
  return surrounded_rows_input(files, rules.text,
                               {"labelled", rules.labels, rules.classes, static_cast<int>(rules.kind)});
}

LineRowEncoder labelled_row_encoder(const LabelledRules& rules) {
  const auto encoder = std::make_shared<const LabelledEncoder>(rules);
  return {.encode =
              [encoder](const FoundLine& line) {
                return encoder->encode(labelled_object(line.text, line.place), line.place);
              },
          .note = ""};
}

// A row in its parts.
struct LabelledText {
  std::span<const std::int32_t> ids, types, label;
};

class LabelledLines final : public Dataset {
 public:
  LabelledLines(const Files& files, const LabelledRules& rules, const OpenProgress& progress)
      : rules_(rules), lines_(labelled_input(files, rules), progress, [&] { return labelled_row_encoder(rules); }) {}

  const LineRows& lines() const { return lines_; }

  std::int64_t size() const override { return static_cast<std::int64_t>(lines_.rows().size()); }
  std::int64_t sequence_length() const override { return rules_.text.sequence_length; }
  std::vector<SampleEntry> entries() const override { return labelled_entries(rules_); }

  std::string summary() const override {
    std::size_t tokens = 0, longest = 0, truncated = 0;
    for (std::int64_t i = 0; i < size(); ++i) {
      const std::size_t count = text_of(i).ids.size();
      tokens += count;
      longest = std::max(longest, count);
      truncated += lines_.rows().row(static_cast<std::size_t>(i)).facts.flags == kWasShortened ? 1 : 0;
    }
    std::string said = fmt::format("{} labelled lines with {} tokens ({:.1f} per line, at most {})", size(), tokens,
                                   static_cast<double>(tokens) / static_cast<double>(size()), longest);
    if (truncated > 0) said += fmt::format("; {} truncated to {} tokens", truncated, rules_.text.sequence_length);
    if (const std::string skipped = lines_.skipped_in_words(); !skipped.empty()) said += "; " + skipped;
    return said;
  }

  std::vector<SampleToken> tokens_of(std::int64_t index) const override {
    std::vector<SampleToken> tokens;
    for (const std::int32_t id : text_of(index).ids)
      tokens.push_back({.id = id, .position = static_cast<std::int64_t>(tokens.size()), .why = "labelled text"});
    return tokens;
  }

  std::string label_of(std::int64_t index) const override {
    const auto label = text_of(index).label;
    if (rules_.kind == LabelKind::kClass) {
      const auto number = static_cast<std::size_t>(label.front());
      return number < rules_.classes.size() ? fmt::format("{} ({})", number, rules_.classes[number])
                                            : fmt::format("{}", number);
    }
    std::vector<float> numbers;
    for (const std::int32_t bits : label) numbers.push_back(std::bit_cast<float>(bits));
    return fmt::format("{}", fmt::join(numbers, ", "));
  }

  void read_numbers(std::int64_t index, const NumberRow& row) const override {
    const LabelledText text = text_of(index);
    if (row.type() == NumberType::kFloat32) {
      std::memcpy(row.as<float>(), text.label.data(), text.label.size_bytes());
      return;
    }
    const std::int64_t length = rules_.text.sequence_length, tokens = static_cast<std::int64_t>(text.ids.size());
    auto *ids = row.as<std::int64_t>(), *types = ids + length, *mask = types + length;
    std::fill_n(ids, length, rules_.text.padding);
    std::fill_n(types, 2 * length, 0);
    std::ranges::copy(text.ids, ids);
    std::ranges::copy(text.types, types);
    std::fill_n(mask, tokens, 1);
    if (rules_.kind == LabelKind::kClass) mask[length] = text.label.front();
  }

 private:
  LabelledText text_of(std::int64_t index) const {
    const auto row = lines_.rows().row(static_cast<std::size_t>(index)).tokens;
    const std::size_t labels = rules_.kind == LabelKind::kClass ? 1 : static_cast<std::size_t>(rules_.labels),
                      ids = (row.size() - labels) / 2;
    return {.ids = row.first(ids), .types = row.subspan(ids, ids), .label = row.last(labels)};
  }

  LabelledRules rules_;
  LineRows lines_;
};

}  // namespace

std::vector<SampleEntry> labelled_entries(const LabelledRules& rules) {
  const std::int64_t s = rules.text.sequence_length;
  std::vector<SampleEntry> entries = {{"input_ids", 0, s}, {"token_type_ids", s, s}, {"attention_mask", 2 * s, s}};
  if (rules.kind == LabelKind::kClass)
    entries.push_back({"labels", 3 * s});
  else
    entries.push_back({.name = "labels", .length = rules.labels, .type = NumberType::kFloat32});
  return entries;
}

std::unique_ptr<Dataset> open_labelled_lines(const Files& files, const LabelledRules& rules, const std::string& place,
                                             const OpenProgress& progress) {
  auto labelled = std::make_unique<LabelledLines>(files, rules, progress);
  labelled->lines().require_rows(place, kLabelledObject);
  return labelled;
}

std::vector<std::string> label_names(const Files& files) {
  std::set<std::string> names;
  for_each_line(files, [&](const std::string& line, const std::string&) {
    const json label = label_of_line(line);
    for (const json& each : label.is_array() ? label : json::array({label}))
      if (each.is_string()) names.insert(each.get<std::string>());
    return true;
  });
  return {names.begin(), names.end()};
}

bool has_label_lists(const Files& files) {
  bool is_list = false;
  for_each_line(files, [&](const std::string& line, const std::string&) {
    is_list = label_of_line(line).is_array();
    return false;
  });
  return is_list;
}

}  // namespace gantry
