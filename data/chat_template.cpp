#include "gantry/data/chat_template.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gantry/core/chat_template_names.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using nlohmann::json;

// What stands around a message's content.
struct Turn {
  std::string before, after;
};

enum class SystemMessage {
  kTurn,         // a turn of its own
  kInFirstUser,  // before the first user's content, within its turn
  kNone,         // the family's template refuses one
};

struct ChatTemplate {
  const char* name;
  std::string begin;  // of the text
  Turn system, user, assistant;
  SystemMessage system_message = SystemMessage::kTurn;
  bool alternates = false;         // user and assistant take turns
  bool trims = false;              // white space around contents
  bool trims_together = false;     // around the first user's content with the system's before it
  std::string behind_mark;         // the end of assistant.after that is not part of its mark
  std::vector<std::string> marks;  // each stands in the family's own Jinja template
  std::string foreign = "\1";      // and this does not
  std::string end;                 // of the text
};

const std::vector<ChatTemplate>& chat_templates() {
  using enum SystemMessage;
  static const std::vector<ChatTemplate> kTemplates = {
      {.name = "chatml",
       .begin = "",
       .system = {"<|im_start|>system\n", "<|im_end|>\n"},
       .user = {"<|im_start|>user\n", "<|im_end|>\n"},
       .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"},
       .behind_mark = "\n",
       .marks = {"<|im_start|>", "<|im_end|>"},
       .end = ""},
      {.name = "gemma",
       .begin = "<bos>",
       .system = {},
       .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
       .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
       .system_message = kNone,
       .alternates = true,
       .trims = true,
       .behind_mark = "\n",
       .marks = {"<start_of_turn>", "<end_of_turn>", "System role not supported"},
       .end = ""},
      {.name = "gemma3",
       .begin = "<bos>",
       .system = {"", "\n\n"},
       .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
       .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
       .system_message = kInFirstUser,
       .alternates = true,
       .trims = true,
       .behind_mark = "\n",
       .marks = {"<start_of_turn>", "<end_of_turn>", "first_user_prefix"},
       .end = ""},
      {.name = "llama2",
       .begin = "",
       .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
       .user = {"<s>[INST] ", " [/INST]"},
       .assistant = {" ", " </s>"},
       .system_message = kInFirstUser,
       .alternates = true,
       .trims = true,
       .trims_together = true,
       .behind_mark = "",
       .marks = {"[INST]", "<<SYS>>"},
       .end = ""},
      {.name = "llama3",
       .begin = "<|begin_of_text|>",
       .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
       .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
       .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
       .trims = true,
       .behind_mark = "",
       .marks = {"<|start_header_id|>", "<|eot_id|>"},
       .end = ""},
      {.name = "mistral",
       .begin = "<s>",
       .system = {},
       .user = {"[INST] ", " [/INST]"},
       .assistant = {"", "</s>"},
       .system_message = kNone,
       .alternates = true,
       .behind_mark = "",
       .marks = {"[INST]", "[/INST]"},
       .foreign = "<<SYS>>",
       .end = ""},
      {.name = "phi3",
       .begin = "",
       .system = {"<|system|>\n", "<|end|>\n"},
       .user = {"<|user|>\n", "<|end|>\n"},
       .assistant = {"<|assistant|>\n", "<|end|>\n"},
       .behind_mark = "\n",
       .marks = {"<|user|>", "<|end|>"},
       .end = "<|endoftext|>"},
      {.name = "zephyr",
       .begin = "",
       .system = {"<|system|>\n", "</s>\n"},
       .user = {"<|user|>\n", "</s>\n"},
       .assistant = {"<|assistant|>\n", "</s>\n"},
       .behind_mark = "\n",
       .marks = {"<|user|>", "message['content'] + eos_token"},
       .end = ""}};
  return kTemplates;
}

const ChatTemplate& chat_template_of(const std::string& name) {
  for (const auto& known : chat_templates())
    if (known.name == name) return known;
  throw InternalError({"chat template", "there is no template '" + name + "'", "", ""});
}

std::string trimmed(const std::string& text) {
  const char* space = " \t\n\r\f\v";
  const auto begin = text.find_first_not_of(space);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(space) - begin + 1);
}

// In words that follow "has", or "".
std::string message_fault(const json& message, std::size_t index) {
  const std::string place = fmt::format("messages[{}]", index);
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) return place + " has no role";
  if (!message.contains("content") || !message["content"].is_string())
    return place + " has content that is not a string";
  for (const char* key : {"tool_calls", "tools", "function_call"})
    if (message.contains(key)) return fmt::format("{} has {}, which the built-in templates do not support", place, key);
  return "";
}

// Likewise: of the order of roles, the system's message taken out.
std::string order_fault(const ChatTemplate& how, const std::string& role, std::size_t turn, std::size_t index) {
  if (role != "user" && role != "assistant")
    return role == "system"
               ? fmt::format("messages[{}] is a system message, which {} does not support", index, how.name)
               : fmt::format("messages[{}] has the unknown role '{}'", index, role);
  if (how.alternates && (role == "user") != (turn % 2 == 0))
    return fmt::format("messages[{}] has the role '{}', but {} requires {}", index, role, how.name,
                       turn % 2 == 0 ? "user" : "assistant");
  return "";
}

void write_turn(const ChatTemplate& how, const Turn& turn, const std::string& content, bool is_said, ChatText& chat) {
  chat.text += turn.before;
  const std::size_t begin = chat.text.size();
  chat.text += content + turn.after;
  if (is_said) chat.said.emplace_back(begin, chat.text.size() - how.behind_mark.size());
}

}  // namespace

ChatResult write_chat(const std::string& name, const json& messages) {
  const ChatTemplate& how = chat_template_of(name);
  if (!messages.is_array() || messages.empty()) return {{}, "'messages' is not a list, or is empty"};
  ChatResult made{{how.begin, {}}, ""};
  std::string of_system;  // what goes into the first user's turn
  std::size_t turn = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (made.fault = message_fault(messages[i], i); !made.fault.empty()) return made;
    const std::string role = messages[i]["role"], stated = messages[i]["content"];
    const std::string content = how.trims ? trimmed(stated) : stated;
    if (role == "system" && how.system_message == SystemMessage::kTurn) {
      write_turn(how, how.system, content, /*is_said=*/false, made.chat);
      continue;
    }
    if (role == "system" && i == 0 && how.system_message == SystemMessage::kInFirstUser) {
      of_system = how.system.before + stated + how.system.after;
      continue;
    }
    if (made.fault = order_fault(how, role, turn++, i); !made.fault.empty()) return made;
    const bool is_said = role == "assistant";
    if (is_said && content.empty()) return {{}, fmt::format("the assistant message messages[{}] is empty", i)};
    write_turn(how, is_said ? how.assistant : how.user,
               how.trims_together && !is_said ? trimmed(of_system + stated) : of_system + content, is_said, made.chat);
    of_system.clear();
  }
  if (made.chat.said.empty()) return {{}, "there is no assistant message"};
  made.chat.text += how.end;
  return made;
}

std::vector<std::string> chat_marks(const std::string& name) { return chat_template_of(name).marks; }

std::vector<std::string> names_that_fit(const std::string& jinja) {
  std::vector<std::string> names;
  for (const auto& name : chat_template_names()) {
    const auto& [marks, foreign] = std::tie(chat_template_of(name).marks, chat_template_of(name).foreign);
    if (jinja.find(foreign) == std::string::npos &&
        std::ranges::all_of(marks, [&](const auto& mark) { return jinja.find(mark) != std::string::npos; }))
      names.push_back(name);
  }
  return names;
}

}  // namespace gantry
