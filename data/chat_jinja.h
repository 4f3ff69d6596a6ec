// A chat template in Jinja, as Hugging Face's apply_chat_template runs it.
#pragma once

#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/data/jinja/template.h"

namespace gantry {

// strftime() of a time, in local time.
std::string text_of_time(std::time_t now, const std::string& format);

// May be called from several threads at once.
class JinjaTemplate {
 public:
  // `tokens`: the texts of bos_token, eos_token and so on. `now`: the time of strftime_now(), in local time. Throws
  // std::runtime_error, in one line, if the text is not a template.
  JinjaTemplate(const std::string& source, const std::map<std::string, std::string>& tokens,
                std::time_t now = std::time(nullptr));

  // The text of a chat, or why there is none, in words that follow "has".
  struct Written {
    std::string text;
    std::vector<std::pair<std::size_t, std::size_t>> generated;  // [begin, end) of the {% generation %} blocks
    std::string fault;                                           // empty: none
  };
  // `messages`: a list. `variables` replace special tokens of the same name. `prompts`: whether the text ends with the
  // beginning of the assistant's next message.
  Written write(const jinja::Value& messages, const jinja::Variables& variables, bool prompts) const;

  // The text that `prompts` adds, if it is the same for all chats.
  const std::optional<std::string>& constant_prompt() const { return constant_prompt_; }

 private:
  jinja::Template template_;
  std::optional<std::string> constant_prompt_;
  jinja::Variables tokens_;
  std::time_t now_;
};

}  // namespace gantry
