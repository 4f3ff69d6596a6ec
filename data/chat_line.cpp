#include "gantry/data/chat_line.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "gantry/core/base/utf8.h"

namespace gantry {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

OrderedJson without_nulls(const OrderedJson& object) {
  OrderedJson made = OrderedJson::object();
  for (const auto& [key, value] : object.items())
    if (!value.is_null()) made[key] = value;
  return made;
}

// Templates read reasoning_content, and some read thinking.
void add_reasoning_names(OrderedJson& message) {
  for (const char* name : kReasoning)
    if (message.contains(name)) {
      const OrderedJson reasoning = message[name];
      if (!message.contains("thinking")) message["thinking"] = reasoning;
      message["reasoning_content"] = reasoning;
      return;
    }
}

// The API of OpenAI passes the arguments of a call as text, and templates expect an object.
void parse_arguments(OrderedJson& message) {
  if (!calls_tools(message)) return;
  for (OrderedJson& call : message["tool_calls"]) {
    OrderedJson* function = call.is_object() && call.contains("function") ? &call["function"] : &call;
    if (!function->is_object() || !function->contains("arguments") || !(*function)["arguments"].is_string()) continue;
    OrderedJson parsed =
        OrderedJson::parse((*function)["arguments"].get_ref<const std::string&>(), nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) (*function)["arguments"] = std::move(parsed);
  }
}

bool is_text_part(const OrderedJson& part) {
  return part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
         part["text"].is_string();
}

bool is_image_part(const OrderedJson& part) {
  return part.is_object() && part.contains("type") && part["type"] == "image";
}

bool is_part(const OrderedJson& part) { return is_text_part(part) || is_image_part(part); }

bool has_parts(const OrderedJson& content) {
  return content.is_string() || (content.is_array() && !content.empty() && std::ranges::all_of(content, is_part));
}

// The API of OpenAI has parts {type: image_url, image_url: {url}}.
void rename_image_url(OrderedJson& part) {
  if (!part.contains("type") || part["type"] != "image_url" || !part.contains("image_url")) return;
  const OrderedJson stated = part["image_url"];
  part = {{"type", "image"}, {"url", stated.is_object() && stated.contains("url") ? stated["url"] : stated}};
}

// Data sets whose parts have one set of members fill the others with null, and templates look for members.
void tidy_parts(OrderedJson& message) {
  if (!message.contains("content") || !message["content"].is_array()) return;
  for (OrderedJson& part : message["content"]) {
    if (!part.is_object()) continue;
    part = without_nulls(part);
    rename_image_url(part);
  }
}

// Messages of a prompt may be empty, because an answer may be, but an empty answer cannot be trained on.
std::string shape_fault(const OrderedJson& message, std::size_t index, bool is_prompt) {
  const std::string place = fmt::format("messages[{}]", index);
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) return place + " has no role";
  const bool says_more = calls_tools(message) || message.contains("reasoning_content");
  if (!message.contains("content")) return says_more ? "" : place + " has neither content nor tool calls";
  if (is_prompt && message["content"] == OrderedJson::array()) return "";
  if (!has_parts(message["content"]))
    return place + " has content that is neither a string nor a list of texts and images";
  const bool is_empty = message["content"] == "" && !says_more;
  return is_empty && !is_prompt && is_assistants(message) ? "the assistant message " + place + " is empty" : "";
}

// Whether the message asks for a loss; nothing if it does not say.
std::optional<bool> asks_for_loss(const OrderedJson& message, std::string& fault) {
  std::optional<bool> asks;
  for (const char* key : {"weight", "train", "loss_mask", "trainable"}) {
    if (!message.contains(key)) continue;
    const OrderedJson& value = message[key];
    const bool is_flag = value.is_boolean() || (value.is_number() && (value == 0 || value == 1));
    if (!is_flag) {
      fault = fmt::format("{} is {}, not 0, 1, false or true", key, value.dump());
      return {};
    }
    const bool stated = value.is_boolean() ? value.get<bool>() : value == 1;
    if (asks && *asks != stated) fault = "members that contradict each other about the loss";
    asks = stated;
  }
  return asks;
}

void find_trained(ChatLine& made, const std::string& loss_on) {
  std::size_t answers = 0;
  for (std::size_t i = 0; i < made.messages.size() && made.fault.empty(); ++i) {
    std::string fault;
    const auto asks = asks_for_loss(made.messages[i], fault);
    const bool is_answer = is_assistants(made.messages[i]);
    answers += is_answer ? 1 : 0;
    if (!is_answer && asks.value_or(false))
      fault = "the message asks for a loss, which only the assistant's messages have";
    if (!fault.empty()) made.fault = fmt::format("messages[{}]: {}", i, fault);
    if (is_answer && loss_on == "last") made.trained.clear();
    if (is_answer && asks.value_or(true)) made.trained.push_back(i);
  }
  if (!made.fault.empty()) return;
  if (answers == 0)
    made.fault = "there is no assistant message";
  else if (made.trained.empty() && loss_on != "all")
    made.fault = "no assistant message has a loss";
}

// The beginning of a text, in whole characters.
std::string beginning_of(const std::string& text) {
  constexpr std::size_t kShown = 80;
  return text.substr(0, utf8_start(text, std::min(kShown, text.size())));
}

std::string file_fault(const OrderedJson& file, const std::string& place) {
  if (!file.is_string() || file == "")
    return fmt::format("{} has the image {}, which is not the path of a file", place, beginning_of(file.dump()));
  const auto& path = file.get_ref<const std::string&>();
  if (path.find("://") == std::string::npos && !path.starts_with("data:")) return "";
  return fmt::format("{} has the image '{}', but images are read from local files only", place, beginning_of(path));
}

// The file that an image part states; null: none.
const OrderedJson* stated_file(const OrderedJson& part) {
  for (const char* name : {"image", "path", "url"})
    if (part.contains(name)) return &part[name];
  return nullptr;
}

// The files of the image parts, from the parts and the list `images` of the line.
void read_images(const OrderedJson& line, ChatLine& made) {
  OrderedJson listed = line.contains("images") ? line["images"] : OrderedJson();
  if (listed.is_null()) listed = OrderedJson::array();
  if (!listed.is_array()) {
    made.fault = "'images' is not a list";
    return;
  }
  std::size_t used = 0;  // files of the list
  for (std::size_t i = 0; i < made.messages.size() && made.fault.empty(); ++i) {
    if (!made.messages[i].contains("content") || !made.messages[i]["content"].is_array()) continue;
    for (const OrderedJson& part : made.messages[i]["content"]) {
      if (!is_image_part(part) || !made.fault.empty()) continue;
      const OrderedJson* file = stated_file(part);
      if (!file && used++ < listed.size()) file = &listed[used - 1];
      if (!file) continue;  // the counts differ
      made.fault = file_fault(*file, fmt::format("messages[{}]", i));
      if (made.fault.empty()) made.images.push_back(*file);
    }
  }
  if (made.fault.empty() && used != listed.size())
    made.fault =
        fmt::format("the number of files in 'images' is {}, but the number of image parts without a file is {}",
                    listed.size(), used);
}

// tools, documents and chat_template_kwargs.
void read_variables(const OrderedJson& line, ChatLine& made) {
  made.variables = OrderedJson::object();
  for (const char* name : {"tools", "documents"}) {
    if (!line.contains(name) || line[name].is_null()) continue;
    made.variables[name] = line[name];
    if (!line[name].is_array()) made.fault = fmt::format("'{}' is not a list", name);
  }
  const OrderedJson stated = line.contains("chat_template_kwargs") ? line["chat_template_kwargs"] : OrderedJson();
  if (stated.is_null()) return;
  if (!stated.is_object()) {
    made.fault = "'chat_template_kwargs' is not an object";
    return;
  }
  for (const auto& [name, value] : stated.items()) {
    if (name == "messages" || name == "add_generation_prompt")
      made.fault =
          fmt::format("'chat_template_kwargs' contains '{}', which Gantry itself passes to the template", name);
    made.variables[name] = value;
  }
}

}  // namespace

bool is_image(const OrderedJson& part) {
  return is_image_part(part) || (part.is_object() && part.contains("type") && part["type"] == "image_url");
}

bool has_image_parts(const OrderedJson& messages) {
  if (!messages.is_array()) return false;
  return std::ranges::any_of(messages, [&](const OrderedJson& message) {
    const bool has_list = message.is_object() && message.contains("content") && message["content"].is_array();
    return has_list && std::ranges::any_of(message["content"], is_image);
  });
}

bool is_assistants(const OrderedJson& message) { return message["role"] == "assistant"; }

bool calls_tools(const OrderedJson& message) {
  return message.contains("tool_calls") && message["tool_calls"].is_array() && !message["tool_calls"].empty();
}

ChatLine read_chat_line(const OrderedJson& line, const std::string& loss_on) {
  ChatLine made;
  const OrderedJson& messages = line["messages"];
  read_variables(line, made);
  if (!messages.is_array() || messages.empty()) made.fault = "'messages' is not a list, or is empty";
  if (!made.fault.empty()) return made;
  made.messages = OrderedJson::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    OrderedJson message = messages[i].is_object() ? without_nulls(messages[i]) : messages[i];
    if (message.is_object()) {
      add_reasoning_names(message);
      tidy_parts(message);
    }
    if (made.fault = shape_fault(message, i, loss_on.empty()); !made.fault.empty()) return made;
    parse_arguments(message);
    made.messages.push_back(std::move(message));
  }
  read_images(line, made);
  if (!made.fault.empty()) made.expected = "a file for each image part, in the part itself or in 'images'";
  if (made.fault.empty() && !loss_on.empty()) find_trained(made, loss_on);
  return made;
}

}  // namespace gantry
