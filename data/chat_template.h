// Chat templates by name, for tokenizers without a template of their own, and the text that a template makes of a chat.
//
// They make the same text as Hugging Face's templates of these families, without a default system message. Tools are
// not supported. Names: chatml (Qwen, SmolLM, ...), gemma (1 and 2), gemma3, llama2, llama3, mistral (7B Instruct
// v0.2), phi3 and zephyr. The files are in data/chat_templates.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gantry {

// A chat as one text. Each part with a loss, with the mark that ends it, is [begin, end) of the text.
struct ChatText {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> said;
  std::vector<std::pair<std::size_t, std::size_t>> not_trained;  // answers without a loss, as far as they were found
  bool lacks_end = false;                // the text ends with an answer that has a loss, without a mark at its end
  std::vector<std::string> images = {};  // the files of the messages' images, in order
  std::vector<std::pair<std::size_t, std::size_t>> image_texts = {};  // their tokens, if they replace the marks
};

// A chat's text, or why the messages cannot be rendered, in words that follow "has".
struct ChatResult {
  ChatText chat;
  std::string fault = {};     // empty: none
  std::string expected = {};  // see ChatLine
};

// A file of data/chat_templates, which the build embeds. The last entry has no name.
struct ChatTemplateFile {
  const char* name;
  const char* jinja;
};
extern const ChatTemplateFile kChatTemplateFiles[];

// The Jinja text of the template of that name.
std::string chat_template_text(const std::string& name);

// Texts of which each is in the family's own Jinja template.
std::vector<std::string> chat_marks(const std::string& name);

// Names of templates whose marks are all in a Jinja template, and which it does not contradict.
std::vector<std::string> names_that_fit(const std::string& jinja);

}  // namespace gantry
