// Chats as prompts: messages, by the chat template of the model.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

class FolderChat;
class PromptImages;

class ChatPrompts {
 public:
  // `tokenizer`: see load_tokenizer(); its directory has the chat template. `name`: a built-in template instead, as
  // data.chat_template; or "". `kwargs`: variables of the template as a JSON object, as data.template_kwargs; or "".
  // Throws InputError if there is no template, or if it cannot be read.
  ChatPrompts(const std::string& tokenizer, const std::string& name, const std::string& kwargs);
  ~ChatPrompts();

  // Returns the tokens of a chat and of the heading of the answer, like apply_chat_template of Hugging Face with
  // add_generation_prompt. Special tokens are those that the template writes. `chat`: an object with `messages`, and
  // maybe `tools`, `documents` and `chat_template_kwargs`. `where`: the chat's place, for errors. Throws InputError for
  // messages that the template cannot render, and for messages with images.
  TokenIds encode(const nlohmann::ordered_json& chat, const std::string& where) const;
  // The same for a chat with images, whose files are relative to the directory of `where`. Adds them to `images`. Null:
  // images are errors.
  TokenIds encode(const nlohmann::ordered_json& chat, const std::string& where, PromptImages* images) const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<FolderChat> chat_;
};

// A chat of a file, as an object with messages.
struct FileChat {
  std::string where;  // FILE, or FILE:LINE
  std::string json;
  bool has_images = false;                  // in its messages
  std::optional<std::string> adapter = {};  // the name of its adapter; "": null in the file; no value: none is named
};

// Reads the chats of a file ("-": standard input): a JSON list of messages, an object with messages, or JSON lines of
// them. An object can have `adapter`, a name or null. `system`: the text of a system message to begin each chat with;
// or "". Throws InputError for other contents, and if a chat already begins with a system message.
std::vector<FileChat> read_chats(const std::string& file, const std::string& system);

}  // namespace gantry
