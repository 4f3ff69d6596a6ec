#include "gantry/data/chat_template.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/config/chat_template_names.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

// How a family's own Jinja template is recognized.
struct ChatMarks {
  const char* name;
  std::vector<std::string> marks;  // all of them are in it
  std::string foreign = "\1";      // and this is not
};

const ChatMarks& marks_of(const std::string& name) {
  static const std::vector<ChatMarks> kMarks = {
      {"chatml", {"<|im_start|>", "<|im_end|>"}},
      {"gemma", {"<start_of_turn>", "<end_of_turn>", "System role not supported"}},
      {"gemma3", {"<start_of_turn>", "<end_of_turn>", "first_user_prefix"}},
      {"llama2", {"[INST]", "<<SYS>>"}},
      {"llama3", {"<|start_header_id|>", "<|eot_id|>"}},
      {"mistral", {"[INST]", "[/INST]"}, "<<SYS>>"},
      {"phi3", {"<|user|>", "<|end|>"}},
      {"zephyr", {"<|user|>", "message['content'] + eos_token"}}};
  const auto found = std::ranges::find_if(kMarks, [&](const ChatMarks& each) { return each.name == name; });
  if (found == kMarks.end()) throw InternalError({"chat template", "there is no template '" + name + "'", "", ""});
  return *found;
}

}  // namespace

std::string chat_template_text(const std::string& name) {
  const ChatTemplateFile* file = kChatTemplateFiles;
  while (file->name != nullptr && name != file->name) ++file;
  if (file->name == nullptr) throw InternalError({"chat template", "there is no template '" + name + "'", "", ""});
  return file->jinja;
}

std::vector<std::string> chat_marks(const std::string& name) { return marks_of(name).marks; }

std::vector<std::string> names_that_fit(const std::string& jinja) {
  std::vector<std::string> names;
  for (const auto& name : chat_template_names()) {
    const ChatMarks& how = marks_of(name);
    const auto is_in = [&](const std::string& mark) { return jinja.find(mark) != std::string::npos; };
    if (!is_in(how.foreign) && std::ranges::all_of(how.marks, is_in)) names.push_back(name);
  }
  return names;
}

}  // namespace gantry
