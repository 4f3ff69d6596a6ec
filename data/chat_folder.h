// Chats as text by the template of a tokenizer's folder.
#pragma once

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>

#include "gantry/data/chat_jinja.h"
#include "gantry/data/chat_line.h"
#include "gantry/data/chat_template.h"

namespace gantry {

// The Jinja templates in a tokenizer's folder, and the special tokens.
struct ChatSource {
  std::string jinja;                          // the default one
  std::map<std::string, std::string> named;   // others: tool_use, rag, ...
  std::string file;                           // path of the default one
  std::map<std::string, std::string> tokens;  // the special tokens' texts: bos_token, eos_token, ...
};
// The default is chat_template.jinja, or `chat_template` of tokenizer_config.json or of chat_template.json. This member
// may be a list of named templates, of which `default` is the default. Further named ones are the files
// additional_chat_templates/NAME.jinja. Returns nothing if there is no default. InputError for a file that is not JSON.
std::optional<ChatSource> read_chat_source(const std::string& folder);

// May be called from several threads at once.
class FolderChat {
 public:
  // A template that cannot be read is an error only when write() needs it. `kwargs`: an object of variables for the
  // templates; those of a line replace them. `now`: the time of strftime_now().
  explicit FolderChat(ChatSource source, const nlohmann::ordered_json& kwargs = nlohmann::ordered_json::object(),
                      std::time_t now = std::time(nullptr));

  const std::string& file() const { return source_.file; }

  // `line`, `loss_on`: see read_chat_line(). A chat with tools is rendered by the template tool_use, and one with
  // documents by rag, if the folder has them. The parts with a loss are those of {% generation %} blocks, or those of
  // SaidFinder; none are looked for if loss_on is "all". InputError for a template that cannot be parsed.
  ChatResult write(const nlohmann::ordered_json& line, const std::string& loss_on) const;
  // The text of the messages with the heading of an answer, like apply_chat_template with add_generation_prompt.
  ChatResult prompt(const nlohmann::ordered_json& line) const;

 private:
  using Parsed = std::variant<JinjaTemplate, std::string>;  // or the reason why it cannot be read

  // Whether the template receives this variable with a value other than null.
  bool passes(const ChatLine& line, const std::string& variable) const;
  const JinjaTemplate& template_for(const ChatLine& line) const;
  jinja::Variables variables_of(const ChatLine& line) const;

  ChatSource source_;
  jinja::Variables kwargs_;
  std::map<std::string, Parsed> templates_;  // by name; "" is the default
};

// The chats of a tokenizer, as load_tokenizer() takes it: by the built-in template `name` or, if that is empty, by the
// template in the tokenizer's directory. Nothing if there is no template. `kwargs`: data.template_kwargs. InputError if
// the named template contradicts that of the directory. `now`: the time of strftime_now().
std::optional<FolderChat> open_chat(const std::string& tokenizer, const std::string& name, const std::string& kwargs,
                                    std::time_t now = std::time(nullptr));

// The part of `now` that can change the text of these chats, as text: nothing for templates without strftime_now(), the
// date for those with a date only, else all of it.
std::string time_in_chats(const std::string& tokenizer, const std::string& name, std::time_t now);

}  // namespace gantry
