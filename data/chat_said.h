// The parts of a chat's text that the assistant says.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "gantry/data/chat_jinja.h"
#include "gantry/data/chat_line.h"
#include "gantry/data/chat_template.h"

namespace gantry {

// Finds them by marks in the messages, which the template renders once more, so that it may rewrite earlier turns, add
// headings and merge messages.
//
// A part begins after the template's heading: after as much of the generation prompt as there is before the message, or
// with the white space before the message if the template has no generation prompt. It ends with the mark that follows
// the message, such as <|im_end|>. If the template has no end mark, this is the heading of the next message, and after
// the last message nothing (see ChatText::lacks_end).
class SaidFinder {
 public:
  using Render = std::function<JinjaTemplate::Written(const jinja::Value& messages, bool prompts)>;

  struct Constants {
    std::string end_token;                         // its text, or ""
    std::optional<std::string> generation_prompt;  // if it does not depend on the messages
  };

  // `messages`: those of `line`, as values. The references must outlive the finder.
  SaidFinder(const ChatLine& line, const jinja::Value& messages, const Render& render, const Constants& constants)
      : line_(line), messages_(messages.items()), render_(render), constants_(constants) {}

  // Adds the parts of line.trained to `chat`, whose text is that of all messages. Returns the reason why they cannot be
  // found, in words that follow "has", or "".
  std::string find(ChatText& chat);

 private:
  std::string find_marks(const std::string& text);
  void read_prompt(const std::string& text);
  std::string rendered(std::size_t count, bool prompts) const;  // text of the first messages; "" on failure
  std::size_t begin_of(const std::string& text, std::size_t index, std::size_t previous_end) const;
  std::size_t end_of(const std::string& text, std::size_t index, std::size_t next_begin) const;
  std::size_t end_of_call(const std::string& text, std::size_t index, std::size_t at, std::size_t next_begin) const;
  // Returns the end of the mark that follows `at` and white space; `at` itself if there is none.
  std::size_t behind_mark(const std::string& text, std::size_t at) const;

  const ChatLine& line_;
  const jinja::Values& messages_;
  const Render& render_;
  const Constants& constants_;
  std::map<std::size_t, std::pair<std::size_t, std::size_t>> places_;
  std::string prompt_;  // the generation prompt
};

}  // namespace gantry
