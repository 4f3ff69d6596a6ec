// Chats as text by the template of a tokenizer's folder.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/data/chat_jinja.h"
#include "gantry/data/chat_template.h"

namespace gantry {

// The Jinja template in a tokenizer's folder, and what it names.
struct ChatSource {
  std::string jinja;
  std::string file;                           // where it stands
  std::map<std::string, std::string> tokens;  // the special tokens' texts: bos_token, eos_token, ...
};
// chat_template.jinja, or `chat_template` of tokenizer_config.json or of chat_template.json, of several templates the
// one that is named default; nothing where there is none. InputError for files that are no JSON.
std::optional<ChatSource> read_chat_source(const std::string& folder);

// May be called from several threads at once.
class FolderChat {
 public:
  // A text that is no template is an error only when a chat is to be written by it.
  explicit FolderChat(ChatSource source);

  const std::string& file() const { return source_.file; }

  // `line`: an object with `messages`, each with a role and a content that is text or a list of texts, and maybe with
  // `tools`. What the assistant says is told apart where `tells_said`: the text of the messages before one of the
  // assistant's, with the prompt to go on, must begin the text of all, and so must the text of the messages up to it.
  // InputError for a template that can't be parsed.
  ChatResult write(const nlohmann::ordered_json& line, bool tells_said) const;

 private:
  // Appends [begin, end) of what messages[index] says in the text of all; returns a fault, or "".
  std::string find_said(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools, std::size_t index,
                        ChatText& chat) const;

  ChatSource source_;
  std::unique_ptr<JinjaTemplate> template_;  // null: see fault_
  std::string fault_;
};

}  // namespace gantry
