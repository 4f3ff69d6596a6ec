#include "gantry/generation/chat_prompts.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/chat_folder.h"
#include "gantry/data/images/chat_images.h"
#include "gantry/generation/prompt_images.h"

namespace gantry {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kChatForm = "a list of messages, or an object with messages";

std::string read_all(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream opened = open_for_reading(file);
  if (!opened)
    throw InputError({file, "the file cannot be read", "a file with messages, or - for the standard input", ""});
  return {std::istreambuf_iterator<char>(opened), {}};
}

bool is_chat(const OrderedJson& value) {
  if (value.is_object()) return value.contains("messages");
  return value.is_array() && !value.empty() && value[0].is_object() && value[0].contains("role");
}

// Takes `adapter` out of a chat.
std::optional<std::string> take_adapter(OrderedJson& chat, const std::string& where) {
  const auto found = chat.find("adapter");
  if (found == chat.end()) return std::nullopt;
  if (!found->is_null() && (!found->is_string() || found->get<std::string>().empty()))
    throw InputError({where, "adapter is " + found->dump(), "the name of an adapter, or null", ""});
  const std::string name = found->is_null() ? "" : found->get<std::string>();
  chat.erase("adapter");
  return name;
}

FileChat chat_of(const std::string& text, const std::string& where, const std::string& system) {
  OrderedJson value;
  if (const auto fault = parse_strict(text, value); !fault.empty()) throw InputError({where, fault, kChatForm, ""});
  if (!is_chat(value)) throw InputError({where, "the value is not a chat", kChatForm, ""});
  if (value.is_array()) value = OrderedJson{{"messages", std::move(value)}};
  FileChat chat{.where = where, .json = {}, .has_images = has_image_parts(value["messages"])};
  chat.adapter = take_adapter(value, where);
  OrderedJson& messages = value["messages"];
  const bool begins_with_system =
      messages.is_array() && !messages.empty() && messages[0].is_object() && messages[0].value("role", "") == "system";
  if (!system.empty() && begins_with_system)
    throw InputError({where, "the chat begins with a system message, but --system is given", "one of the two",
                      "remove --system or that message"});
  if (!system.empty() && messages.is_array())
    messages.insert(messages.begin(), OrderedJson::object({{"role", "system"}, {"content", system}}));
  chat.json = value.dump();
  return chat;
}

}  // namespace

ChatPrompts::ChatPrompts(const std::string& tokenizer, const std::string& name, const std::string& kwargs)
    : tokenizer_(load_tokenizer(tokenizer)) {
  auto chat = open_chat(tokenizer, name, kwargs);
  if (!chat)
    throw InputError({tokenizer, "there is no chat template",
                      "chat_template.jinja, or chat_template in tokenizer_config.json",
                      "use a model that was trained on chats, or write a prompt"});
  chat_ = std::make_unique<FolderChat>(std::move(*chat));
}

ChatPrompts::~ChatPrompts() = default;

TokenIds ChatPrompts::encode(const OrderedJson& chat, const std::string& where) const {
  return encode(chat, where, nullptr);
}

TokenIds ChatPrompts::encode(const OrderedJson& chat, const std::string& where, PromptImages* images) const {
  auto [written, fault, expected] = chat_->prompt(chat);
  if (!images && !written.images.empty())
    throw InputError({where, "the messages have images, but the model reads text only", "texts",
                      "use a model that was trained with its image encoder, or remove the images"});
  if (!expected.empty()) throw InputError({where, fault, expected, "change the messages"});
  if (!fault.empty())
    throw InputError(
        {where, fault, "messages that the chat template " + chat_->file() + " can render", "change the messages"});
  if (images) {
    auto read =
        read_chat_images(images->reader(), std::filesystem::path(where).parent_path(), chat["messages"], written);
    if (!read.fault.empty()) throw InputError({where, read.fault, "", "change the messages"});
    images->add(std::move(read.images));
  }
  return tokenizer_->encode(written.text);
}

std::vector<FileChat> read_chats(const std::string& file, const std::string& system) {
  const std::string text = read_all(file), name = file == "-" ? "standard input" : file;
  if (json_fault(text).empty()) return {chat_of(text, name, system)};
  std::vector<FileChat> chats;
  std::istringstream lines(text);
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      chats.push_back(chat_of(line, fmt::format("{}:{}", name, number), system));
  if (chats.empty()) throw InputError({name, "the file is empty", kChatForm, ""});
  return chats;
}

}  // namespace gantry
