#include "gantry/data/chat_folder.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/special_tokens.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr std::uintmax_t kMostChatBytes = 64u << 20;
constexpr const char* kWhiteSpace = " \t\n\r\f\v";

// A template, or a list of {name, template}.
std::string default_template(const nlohmann::json& stated) {
  if (stated.is_string()) return stated;
  if (stated.is_array())
    for (const auto& each : stated)
      if (each.is_object() && each.value("name", "") == "default") return each.value("template", "");
  return "";
}

// Of what the first file has, the second one's counts no more.
void read_token_texts(const fs::path& path, std::map<std::string, std::string>& tokens) {
  if (!path_exists(path)) return;
  const auto json = read_json_file(path, kMostChatBytes);
  const JsonView file(json, path.string());
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto value = file.find(name)) tokens.try_emplace(name, token_content(*value));
}

bool is_text_part(const OrderedJson& part) {
  return part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
         part["text"].is_string();
}

// In words that follow "has", or "".
std::string shape_fault(const OrderedJson& message, std::size_t index) {
  const std::string place = fmt::format("messages[{}]", index);
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) return place + " has no role";
  const bool has_content = message.contains("content");
  if (has_content && message["content"].is_string()) {
    const bool says_nothing = message["content"] == "" && !message.contains("tool_calls");
    return says_nothing && message["role"] == "assistant" ? "the assistant message " + place + " is empty" : "";
  }
  if (has_content && message["content"].is_array() && !message["content"].empty() &&
      std::ranges::all_of(message["content"], is_text_part))
    return "";
  return place + " has content that is neither a string nor a list of texts (write \"\" for a tool call)";
}

bool is_assistants(const OrderedJson& message) { return message["role"] == "assistant"; }

std::string messages_fault(const OrderedJson& line) {
  const OrderedJson& messages = line["messages"];
  if (!messages.is_array() || messages.empty()) return "'messages' is not a list, or is empty";
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (std::string fault = shape_fault(messages[i], i); !fault.empty()) return fault;
  if (line.contains("tools") && !line["tools"].is_null() && !line["tools"].is_array()) return "'tools' is not a list";
  return std::ranges::any_of(messages, is_assistants) ? "" : "there is no assistant message";
}

std::string last_text(const OrderedJson& message) {
  const OrderedJson& content = message["content"];
  return content.is_string() ? content : content.back()["text"];
}

std::string without_outer_space(const std::string& text) {
  const auto begin = text.find_first_not_of(kWhiteSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

// Where white space ends behind a mark that ends what is said: that belongs to the next message.
std::size_t end_of_mark(const std::string& text, std::size_t begin, std::size_t end, const std::string& content) {
  const std::string said = text.substr(begin, end - begin);
  const auto place = content.empty() ? 0 : said.rfind(content);  // a call of a tool is all mark
  const auto last = said.find_last_not_of(kWhiteSpace);
  if (place == std::string::npos || last == std::string::npos || last < place + content.size()) return end;
  return begin + last + 1;
}

}  // namespace

std::optional<ChatSource> read_chat_source(const std::string& folder) {
  const fs::path place(folder);
  if (!is_folder(folder)) return {};
  ChatSource source;
  if (const auto path = place / "chat_template.jinja"; path_exists(path))
    source.jinja = read_bytes(path, kMostChatBytes), source.file = path.string();
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto path = place / name;
    if (!source.jinja.empty() || !path_exists(path)) continue;
    const auto json = read_json_file(path, kMostChatBytes);
    if (json.is_object() && json.contains("chat_template"))
      source.jinja = default_template(json["chat_template"]), source.file = path.string();
  }
  if (source.jinja.empty()) return {};
  read_token_texts(place / "tokenizer_config.json", source.tokens);
  read_token_texts(place / "special_tokens_map.json", source.tokens);
  return source;
}

FolderChat::FolderChat(ChatSource source) : source_(std::move(source)) {
  try {
    template_ = std::make_unique<JinjaTemplate>(source_.jinja, source_.tokens);
  } catch (const std::runtime_error& error) {
    fault_ = error.what();
  }
}

ChatResult FolderChat::write(const OrderedJson& line, bool tells_said) const {
  if (!template_)
    throw InputError({source_.file, "the chat template cannot be read: " + fault_, "a Jinja template",
                      "set data.chat_template to the name of a built-in template"});
  if (std::string fault = messages_fault(line); !fault.empty()) return {{}, fault};
  const OrderedJson& messages = line["messages"];
  const OrderedJson tools = line.contains("tools") ? line["tools"] : OrderedJson();
  auto [text, fault] = template_->write(messages, tools, /*prompts=*/false);
  ChatResult made{{std::move(text), {}}, std::move(fault)};
  for (std::size_t i = 0; tells_said && made.fault.empty() && i < messages.size(); ++i)
    if (is_assistants(messages[i])) made.fault = find_said(messages, tools, i, made.chat);
  return made;
}

std::string FolderChat::find_said(const OrderedJson& messages, const OrderedJson& tools, std::size_t index,
                                  ChatText& chat) const {
  const auto first = [&](std::size_t count) {
    return OrderedJson(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
  };
  const auto before = template_->write(first(index), tools, /*prompts=*/true);
  if (!before.fault.empty() || !chat.text.starts_with(before.text))
    return fmt::format(
        "the beginning of messages[{}] cannot be located, because the chat template renders the preceding messages "
        "differently without it{} (data.loss_on: all does not need it)",
        index, before.fault.empty() ? "" : ": " + before.fault);
  auto [until, fault] = template_->write(first(index + 1), tools, /*prompts=*/false);
  // Some templates end every chat with a token, and not every message.
  const auto end_token = source_.tokens.find("eos_token");
  if (!chat.text.starts_with(until) && end_token != source_.tokens.end() && until.ends_with(end_token->second))
    until.resize(until.size() - end_token->second.size());
  if (!fault.empty() || !chat.text.starts_with(until) || until.size() <= before.text.size())
    return fmt::format(
        "the end of messages[{}] cannot be located, because the chat template renders it differently when more "
        "messages follow (data.loss_on: all does not need it)",
        index);
  const std::string content = without_outer_space(last_text(messages[index]));
  const std::size_t begin = before.text.size();
  chat.said.emplace_back(begin, end_of_mark(chat.text, before.text.size(), until.size(), content));
  return "";
}

}  // namespace gantry
