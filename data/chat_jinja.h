// A chat template in Jinja, as Hugging Face's apply_chat_template runs it: blocks lose the line break behind them and
// the white space before them, raise_exception() and strftime_now() are there, and so are the special tokens by their
// names.
//
// minja (https://github.com/google/minja, MIT) runs it, which is not all of Jinja: what it does not know is an error.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gantry {

// May be called from several threads at once.
class JinjaTemplate {
 public:
  // `tokens`: the texts of bos_token, eos_token and so on; those that are missing are empty texts. `now`: what
  // strftime_now() tells, in local time. Throws std::runtime_error, in one line, for a text that is no template.
  JinjaTemplate(const std::string& source, const std::map<std::string, std::string>& tokens,
                std::time_t now = std::time(nullptr));
  ~JinjaTemplate();

  // What the template writes of a list of messages, or why it can't, in words that follow "has".
  struct Written {
    std::string text;
    std::string fault;  // empty: none
  };
  // `tools`: a list, or null. `prompts`: whether the beginning of what the assistant is to say next stands at the end.
  Written write(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools, bool prompts) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace gantry
