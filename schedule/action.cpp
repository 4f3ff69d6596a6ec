#include "gantry/schedule/action.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

#include "gantry/core/error.h"

namespace gantry::schedule {
namespace {

struct KindFacts {
  std::string_view name;
  ActionRole role;
  bool has_microbatch = true;
};

// In the order of ActionKind.
constexpr std::array<KindFacts, kActionKinds> kKinds = {{{"F", ActionRole::kCompute},
                                                         {"B", ActionRole::kCompute},
                                                         {"I", ActionRole::kCompute},
                                                         {"W", ActionRole::kCompute},
                                                         {"SEND_F", ActionRole::kMessage},
                                                         {"RECV_F", ActionRole::kMessage},
                                                         {"SEND_B", ActionRole::kMessage},
                                                         {"RECV_B", ActionRole::kMessage},
                                                         {"UNSHARD", ActionRole::kExtra, false},
                                                         {"RESHARD", ActionRole::kExtra, false},
                                                         {"REDUCE_GRAD", ActionRole::kExtra, false},
                                                         {"OFFLOAD", ActionRole::kExtra},
                                                         {"RELOAD", ActionRole::kExtra},
                                                         {"OFFLOAD", ActionRole::kExtra, false},
                                                         {"RELOAD", ActionRole::kExtra, false},
                                                         {"IF", ActionRole::kCompute},
                                                         {"IB", ActionRole::kCompute},
                                                         {"S", ActionRole::kCompute},
                                                         {"C", ActionRole::kCompute},
                                                         {"T", ActionRole::kCompute}}};
const KindFacts& facts_of(ActionKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

constexpr std::string_view kPairName = "OVERLAP_F_B";
// Far above any real pipeline; keeps sums and tables of hostile files small.
constexpr int kMaxIndex = 999'999;

// Shortens the text to 40 characters, without characters that would break a line or a terminal.
std::string shown(std::string_view text) {
  std::string clean;
  for (const char c : text.substr(0, 40)) clean += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
  return "'" + clean + (text.size() > 40 ? "...'" : "'");
}

// The most likely correction of a rejected cell; "" if there is none.
std::string remedy_for(std::string_view kind) {
  if (kind == "BW") return "older files say BW for a full backward and B for an input gradient: write B and I";
  for (const auto& known : kKinds)
    if (kind == known.name && !known.has_microbatch) return "the action is for a stage: write it without a microbatch";
  for (const char c : kind)
    if (std::islower(static_cast<unsigned char>(c))) return "write it in capital letters";
  return "";
}

[[noreturn]] void refuse(std::string_view text, const std::string& where, const std::string& remedy = "") {
  throw ConfigError({where, shown(text) + " is not an action",
                     "stage, F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, OFFLOAD or RELOAD, microbatch, as in 2F0; "
                     "or stage, UNSHARD, RESHARD, REDUCE_GRAD, OFFLOAD or RELOAD",
                     remedy});
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::size_t count_digits(std::string_view text) {
  std::size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  return count;
}

// `digits` is one or more decimal digits.
int parse_index(std::string_view digits, std::string_view text, const std::string& where) {
  if (digits.size() > 1 && digits.front() == '0') refuse(text, where, "write numbers without leading zeros");
  int value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc() || value > kMaxIndex)
    throw ConfigError(
        {where, shown(text) + " contains the number " + shown(digits), "at most " + std::to_string(kMaxIndex), ""});
  return value;
}

Action parse_action(std::string_view text, const std::string& where) {
  const std::size_t stage_digits = count_digits(text);
  std::size_t kind_end = text.size();
  while (kind_end > stage_digits && count_digits(text.substr(kind_end - 1, 1)) == 1) --kind_end;
  const std::string_view kind = text.substr(stage_digits, kind_end - stage_digits);
  const bool with_microbatch = kind_end < text.size();
  const auto known = std::ranges::find_if(
      kKinds, [&](const KindFacts& each) { return each.name == kind && each.has_microbatch == with_microbatch; });
  if (stage_digits == 0 || known == kKinds.end()) refuse(text, where, remedy_for(kind));
  return {static_cast<ActionKind>(known - kKinds.begin()), parse_index(text.substr(0, stage_digits), text, where),
          with_microbatch ? parse_index(text.substr(kind_end), text, where) : kNoMicrobatch};
}

// "(0F7;7B3)OVERLAP_F_B" without outer spaces.
std::vector<Action> parse_pair(std::string_view text, const std::string& where) {
  const std::size_t close = text.find(')');
  const std::size_t middle = text.find(';');
  if (close == std::string_view::npos || middle == std::string_view::npos || middle > close ||
      text.substr(close + 1) != kPairName)
    throw ConfigError({where, shown(text) + " is not an overlapped pair", "a form such as (0F7;7B3)OVERLAP_F_B", ""});
  Action first = parse_action(trim(text.substr(1, middle - 1)), where);
  const Action second = parse_action(trim(text.substr(middle + 1, close - middle - 1)), where);
  const bool second_is_backward = second.kind == ActionKind::kBackward || second.kind == ActionKind::kInputGradient;
  if (first.kind != ActionKind::kForward || !second_is_backward)
    throw ConfigError({where, shown(text) + " overlaps other kinds of actions", "a forward, then a backward", ""});
  first.overlaps_next = true;
  return {first, second};
}

}  // namespace

ActionRole role_of(ActionKind kind) { return facts_of(kind).role; }

bool has_microbatch(ActionKind kind) { return facts_of(kind).has_microbatch; }

std::string to_string(ActionKind kind) { return std::string(facts_of(kind).name); }

std::string to_string(const Action& action) {
  return std::to_string(action.stage) + to_string(action.kind) +
         (has_microbatch(action.kind) ? std::to_string(action.microbatch) : "");
}

std::vector<Action> parse_cell(const std::string& cell, const std::string& where) {
  const std::string_view text = trim(cell);
  if (text.empty()) return {};
  if (text.front() == '(') return parse_pair(text, where);
  return {parse_action(text, where)};
}

}  // namespace gantry::schedule
