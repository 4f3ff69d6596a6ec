// Marks in the texts of messages, by which the messages are found again in the text that a template makes of them.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

namespace gantry {

// Whether a text has characters that marks are made of: Unicode noncharacters.
bool has_mark(const std::string& text);

// The texts that get marks: those of the assistant's messages. Templates look at contents and names, so fewer may be
// necessary.
enum class MarkLevel {
  kTexts,         // the parts of contents and reasoning around <think> and </think>
  kWholeTexts,    // also a tag at the begin or end of a text
  kTextsAndCalls  // also names and text arguments of tool calls, and results
};

// Messages with a mark before and after each marked part. White space around the part stays outside.
nlohmann::ordered_json with_marks(const nlohmann::ordered_json& messages, MarkLevel level);

// A text without its marks, and the places of a message's first and last mark in it.
struct Unmarked {
  std::string text;
  std::map<std::size_t, std::pair<std::size_t, std::size_t>> places;  // by the index of the message
};
Unmarked without_marks(const std::string& text);

}  // namespace gantry
