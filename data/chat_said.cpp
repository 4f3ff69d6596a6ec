#include "gantry/data/chat_said.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/chat_marks.h"

namespace gantry {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kBlank = " \t\n\r\f\v";
constexpr std::size_t kLongestMark = 64;

std::size_t common_prefix(const std::string& one, const std::string& other) {
  const auto least = static_cast<std::ptrdiff_t>(std::min(one.size(), other.size()));
  return static_cast<std::size_t>(std::mismatch(one.begin(), one.begin() + least, other.begin()).first - one.begin());
}

// Without the white space at the end of [begin, end), unless there is nothing else.
std::size_t without_blanks(const std::string& text, std::size_t begin, std::size_t end) {
  const auto last = text.find_last_not_of(kBlank, end == 0 ? 0 : end - 1);
  return last == std::string::npos || last < begin ? end : last + 1;
}

// A part of a generation prompt that a heading may consist of.
bool is_heading(const std::string& prompt, std::size_t size) {
  return size == prompt.size() || std::string_view(">]:\n ").find(prompt[size - 1]) != std::string_view::npos;
}

}  // namespace

std::string SaidFinder::rendered(std::size_t count, bool prompts) const {
  if (count == 0) return "";
  const auto last = messages_.begin() + static_cast<std::ptrdiff_t>(count);
  const auto written = render_(jinja::Value::list({messages_.begin(), last}), prompts);
  return written.fault.empty() ? written.text : "";
}

std::string SaidFinder::find_marks(const std::string& text) {
  for (const MarkLevel level : {MarkLevel::kTextsAndCalls, MarkLevel::kWholeTexts, MarkLevel::kTexts}) {
    const auto written = render_(jinja::value_of(with_marks(line_.messages, level)), /*prompts=*/false);
    if (!written.fault.empty()) continue;
    Unmarked found = without_marks(written.text);
    if (found.text != text) continue;
    places_ = std::move(found.places);
    return "";
  }
  return "the assistant's parts cannot be located, because the chat template depends on the messages' characters "
         "(data.loss_on: all does not need them)";
}

// From the messages before the first answer, because some templates write none after an answer.
void SaidFinder::read_prompt(const std::string& text) {
  if (constants_.generation_prompt) {
    prompt_ = *constants_.generation_prompt;
    return;
  }
  const auto first = std::ranges::find_if(line_.messages, is_assistants) - line_.messages.begin();
  std::string without = rendered(static_cast<std::size_t>(first), false);
  std::string with = rendered(static_cast<std::size_t>(first), true);
  if (with.empty()) without = text, with = rendered(line_.messages.size(), true);
  prompt_ = with.substr(common_prefix(without, with));
}

std::size_t SaidFinder::behind_mark(const std::string& text, std::size_t at) const {
  const auto begin = text.find_first_not_of(kBlank, at);
  if (begin == std::string::npos) return text.size();
  if (!constants_.end_token.empty() && text.compare(begin, constants_.end_token.size(), constants_.end_token) == 0)
    return begin + constants_.end_token.size();
  if (text[begin] == '<') {
    const auto end = text.find_first_of("<> \n", begin + 1);
    if (end != std::string::npos && text[end] == '>' && end - begin <= kLongestMark) return end + 1;
  }
  return begin;
}

std::size_t SaidFinder::begin_of(const std::string& text, std::size_t index, std::size_t previous_end) const {
  const auto place = places_.find(index);
  const bool has_place = place != places_.end();
  // A call of a tool begins before its first mark, and a template without a generation prompt writes the heading
  // after the message before.
  std::size_t prompted = std::string::npos;
  if (!has_place || prompt_.empty() || calls_tools(line_.messages[index])) {
    const std::string before = rendered(index, /*prompts=*/true);
    if (!before.empty() && text.starts_with(before)) prompted = before.size();
  }
  const bool may_lack_heading = prompt_.empty() && !calls_tools(line_.messages[index]);
  if (!has_place || (prompted != std::string::npos && !may_lack_heading)) return prompted;
  const std::size_t at = place->second.first;
  const std::string_view region = std::string_view(text).substr(previous_end, at - previous_end);
  for (std::size_t size = std::min(prompt_.size(), region.size()); size > 0; --size) {
    if (!is_heading(prompt_, size)) continue;
    const auto found = region.rfind(std::string_view(prompt_).substr(0, size));
    if (found != std::string_view::npos) return previous_end + found + size;
  }
  const auto last = prompt_.empty() ? region.find_last_not_of(kBlank) : std::string_view::npos;
  const std::size_t begin = last == std::string_view::npos ? at : previous_end + last + 1;
  return prompted == std::string::npos ? begin : std::min(at, std::max(begin, prompted));
}

std::size_t SaidFinder::end_of(const std::string& text, std::size_t index, std::size_t next_begin) const {
  const auto place = places_.find(index);
  const std::size_t at = place == places_.end() ? 0 : place->second.second;
  if (index + 1 == line_.messages.size()) return without_blanks(text, at, text.size());
  if (place != places_.end() && !calls_tools(line_.messages[index])) return std::min(behind_mark(text, at), next_begin);
  return end_of_call(text, index, at, next_begin);
}

// The text up to a call is a prefix of the full text, except for its end if the result follows in the same turn.
std::size_t SaidFinder::end_of_call(const std::string& text, std::size_t index, std::size_t at,
                                    std::size_t next_begin) const {
  std::string until = rendered(index + 1, /*prompts=*/false);
  if (!text.starts_with(until) && !constants_.end_token.empty() && until.ends_with(constants_.end_token))
    until.resize(until.size() - constants_.end_token.size());
  const std::size_t common = common_prefix(until, text);
  if (!until.empty() && common == until.size() && common >= at) return without_blanks(text, at, common);
  if (at == 0) return std::string::npos;
  if (common >= at) {
    const auto bracket = text.rfind('>', common == 0 ? 0 : common - 1);
    return behind_mark(text, bracket == std::string::npos || bracket < at ? at : bracket + 1);
  }
  // Earlier turns are rewritten. The mark that ends other answers ends the call too.
  const auto other = std::ranges::find_if(places_, [&](const auto& each) {
    const OrderedJson& message = line_.messages[each.first];
    return is_assistants(message) && !calls_tools(message) &&
           behind_mark(text, each.second.second) > each.second.second;
  });
  if (other == places_.end()) return std::string::npos;
  const std::size_t mark_at = other->second.second;
  const std::string mark = text.substr(mark_at, behind_mark(text, mark_at) - mark_at);
  const auto found = text.find(mark, at);
  return found == std::string::npos || found >= next_begin ? std::string::npos : found + mark.size();
}

std::string SaidFinder::find(ChatText& chat) {
  if (has_mark(chat.text)) return "the characters U+FDD0 or U+FDD1, which locate the assistant's parts";
  if (std::string fault = find_marks(chat.text); !fault.empty()) return fault;
  read_prompt(chat.text);
  std::size_t previous_end = 0;
  for (std::size_t i = 0; i < line_.messages.size(); ++i) {
    if (!is_assistants(line_.messages[i])) continue;
    const auto next = places_.upper_bound(i);
    const std::size_t next_begin = next == places_.end() ? chat.text.size() : next->second.first;
    const std::size_t begin = begin_of(chat.text, i, previous_end), end = end_of(chat.text, i, next_begin);
    const bool is_found = begin < end && end <= chat.text.size() && begin < next_begin &&
                          (next_begin >= end || is_assistants(line_.messages[next->first]));
    const bool is_trained = std::ranges::find(line_.trained, i) != line_.trained.end();
    if (!is_found) {
      if (!is_trained) continue;
      return fmt::format(
          "messages[{}] cannot be located, because the chat template renders it differently when more messages follow "
          "(data.loss_on: all does not need it)",
          i);
    }
    (is_trained ? chat.said : chat.not_trained).emplace_back(begin, end);
    const auto place = places_.find(i);
    chat.lacks_end = is_trained && i + 1 == line_.messages.size() && place != places_.end() &&
                     place->second.second == chat.text.size();
    previous_end = end;
  }
  return "";
}

}  // namespace gantry
