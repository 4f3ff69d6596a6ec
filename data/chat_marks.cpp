#include "gantry/data/chat_marks.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/data/chat_line.h"

namespace gantry {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kBeginMark = "\uFDD0", kEndMark = "\uFDD1";  // around the index of a message
constexpr char kBeginOnly = '+';  // after the index: the mark is not the end of the message
constexpr const char* kSpaceAround = " \t\n\r\f\v";

std::string mark_of(std::size_t index) { return fmt::format("{}{}{}", kBeginMark, index, kEndMark); }

// A mark of a part that the template may write again after the message: the name of a function with its result.
std::string begin_mark_of(std::size_t index) {
  return fmt::format("{}{}{}{}", kBeginMark, index, kBeginOnly, kEndMark);
}

// The text with a mark before and one after it.
std::string in_marks(std::string_view text, std::size_t index) {
  const auto begin = text.find_first_not_of(kSpaceAround);
  if (begin == std::string_view::npos) return std::string(text);
  const auto end = text.find_last_not_of(kSpaceAround) + 1;
  const std::string mark = mark_of(index);
  return fmt::format("{}{}{}{}{}", text.substr(0, begin), mark, text.substr(begin, end - begin), mark,
                     text.substr(end));
}

// Templates split contents at the tags of a thought, so each part between them has marks.
std::string between_tags(std::string_view text, std::size_t index) {
  std::string made;
  while (true) {
    std::size_t tag = std::string_view::npos, length = 0;
    for (const std::string_view each : {"<think>", "</think>"})
      if (const auto found = text.find(each); found < tag) tag = found, length = each.size();
    made += in_marks(text.substr(0, tag), index);
    if (tag == std::string_view::npos) return made;
    made += text.substr(tag, length);
    text.remove_prefix(tag + length);
  }
}

void mark_text(OrderedJson& text, std::size_t index, MarkLevel level) {
  if (!text.is_string()) return;
  const std::string all = text;
  std::string made = between_tags(all, index);
  if (const auto begin = made.find_first_not_of(kSpaceAround);
      level > MarkLevel::kTexts && begin != std::string::npos) {
    const std::string mark = mark_of(index);
    if (!made.substr(begin).starts_with(mark)) made.insert(begin, mark);
    const auto end = made.find_last_not_of(kSpaceAround) + 1;
    if (!std::string_view(made).substr(0, end).ends_with(mark)) made.insert(end, mark);
  }
  text = made;
}

void mark_values(OrderedJson& value, std::size_t index, MarkLevel level) {
  if (value.is_string()) return mark_text(value, index, level);
  if (value.is_structured())
    for (OrderedJson& each : value) mark_values(each, index, level);
}

void mark_message(OrderedJson& message, std::size_t index, MarkLevel level) {
  for (const char* name : {"content", "reasoning_content", "thinking", "reasoning"}) {
    if (!message.contains(name)) continue;
    OrderedJson& text = message[name];
    if (text.is_array())
      for (OrderedJson& part : text) {
        if (part.contains("text")) mark_text(part["text"], index, level);
      }
    else
      mark_text(text, index, level);
  }
  if (level < MarkLevel::kTextsAndCalls || !calls_tools(message)) return;
  for (OrderedJson& call : message["tool_calls"]) {
    if (!call.is_object()) continue;
    OrderedJson& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
    if (function.contains("name") && function["name"].is_string())
      function["name"] = begin_mark_of(index) + function["name"].get<std::string>();
    if (function.contains("arguments")) mark_values(function["arguments"], index, level);
  }
}

}  // namespace

bool has_mark(const std::string& text) {
  return text.find(kBeginMark) != std::string::npos || text.find(kEndMark) != std::string::npos;
}

OrderedJson with_marks(const OrderedJson& messages, MarkLevel level) {
  OrderedJson made = messages;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const bool is_result = made[i]["role"] != "system" && made[i]["role"] != "user";
    if (is_assistants(made[i]) || (is_result && level == MarkLevel::kTextsAndCalls)) mark_message(made[i], i, level);
  }
  return made;
}

Unmarked without_marks(const std::string& text) {
  Unmarked made;
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = text.find(kBeginMark, at);
    made.text.append(text, at, begin == std::string::npos ? begin : begin - at);
    const auto end = begin == std::string::npos ? begin : text.find(kEndMark, begin);
    if (end == std::string::npos) break;
    std::string index = text.substr(begin + kBeginMark.size(), end - begin - kBeginMark.size());
    at = end + kEndMark.size();
    const bool is_begin_only = index.ends_with(kBeginOnly);
    if (is_begin_only) index.pop_back();
    if (index.empty() || index.size() > 6 || index.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::size_t place = made.text.size();
    const auto [found, is_new] = made.places.try_emplace(std::stoul(index), place, place);
    if (!is_begin_only) found->second.second = place;
  }
  return made;
}

}  // namespace gantry
