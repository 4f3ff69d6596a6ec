// Chats as text: the templates of common families, by name, for tokenizers without a template of their own.
//
// They are what Hugging Face's chat templates of these families make of messages without tools, and without a default
// system message: chatml (Qwen, SmolLM, ...), gemma (1 and 2), gemma3, llama2, llama3, mistral (7B Instruct v0.2), phi3
// and zephyr.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gantry {

// A chat as one text. What the assistant says, with the mark that ends it, is [begin, end) of it, a pair each.
struct ChatText {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> said;
};

// Why these are no messages that the template of that name can write, in words that follow "has", or the text.
// `messages`: a list of {"role": "system" | "user" | "assistant", "content": a string}. A system message stands first;
// with templates of alternating turns user and assistant take turns.
struct ChatResult {
  ChatText chat;
  std::string fault;  // empty: none
};
ChatResult write_chat(const std::string& name, const nlohmann::json& messages);

// Texts of which each stands in the family's own Jinja template.
std::vector<std::string> chat_marks(const std::string& name);

// Names whose marks all stand in it, and which it does not contradict.
std::vector<std::string> names_that_fit(const std::string& jinja);

}  // namespace gantry
