#include "gantry/data/chat_folder.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/chat_said.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/special_tokens.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr std::uintmax_t kMostChatBytes = 64u << 20;

// Tokens of an earlier file are kept.
void read_token_texts(const fs::path& path, std::map<std::string, std::string>& tokens) {
  if (!path_exists(path)) return;
  const auto json = read_json_file(path, kMostChatBytes);
  const JsonView file(json, path.string());
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto value = file.find(name)) tokens.try_emplace(name, token_content(*value));
}

// The default template and the named ones of a member that is a template, or a list of {name, template}.
void read_templates(const nlohmann::json& stated, const std::string& file, ChatSource& source) {
  if (stated.is_string()) source.jinja = stated, source.file = file;
  if (!stated.is_array()) return;
  for (const auto& each : stated) {
    if (!each.is_object() || !each.contains("name") || !each["name"].is_string() || !each.contains("template") ||
        !each["template"].is_string())
      continue;
    if (each["name"] == "default")
      source.jinja = each["template"], source.file = file;
    else
      source.named[each["name"]] = each["template"];
  }
}

void read_additional(const fs::path& folder, ChatSource& source) {
  if (!is_folder(folder.string())) return;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".jinja")
      source.named[entry.path().stem().string()] = read_bytes(entry.path(), kMostChatBytes);
}

// The parts of {% generation %} blocks that have a loss, one block for each answer. Returns a fault, or "".
std::string take_generated(const ChatLine& line, std::vector<std::pair<std::size_t, std::size_t>> generated,
                           ChatText& chat) {
  const auto answers = static_cast<std::size_t>(std::ranges::count_if(line.messages, is_assistants));
  if (line.trained.size() == answers) {
    chat.said = std::move(generated);
    return "";
  }
  if (generated.size() != answers)
    return fmt::format("{} messages of the assistant, but the chat template has {} generation blocks for them", answers,
                       generated.size());
  std::size_t answer = 0;
  for (std::size_t i = 0; i < line.messages.size(); ++i) {
    if (!is_assistants(line.messages[i])) continue;
    const bool is_trained = std::ranges::find(line.trained, i) != line.trained.end();
    (is_trained ? chat.said : chat.not_trained).push_back(generated[answer++]);
  }
  return "";
}

void require_fitting_template(const std::string& name, const ChatSource& source) {
  const auto fitting = names_that_fit(source.jinja);
  if (std::ranges::find(fitting, name) != fitting.end()) return;
  std::vector<std::string> missing;
  for (const auto& mark : chat_marks(name))
    if (source.jinja.find(mark) == std::string::npos) missing.push_back("'" + mark + "'");
  throw InputError({"data.chat_template",
                    fmt::format("{}, but {} has no {}", name, source.file, fmt::join(missing, " and no ")),
                    fitting.empty() ? "a template of this model's family, which is not built in"
                                    : fmt::format("{}", fmt::join(fitting, " or ")),
                    "remove data.chat_template to use that file's template"});
}

}  // namespace

std::optional<ChatSource> read_chat_source(const std::string& folder) {
  const fs::path place(folder);
  if (!is_folder(folder)) return {};
  ChatSource source;
  read_additional(place / "additional_chat_templates", source);
  if (const auto path = place / "chat_template.jinja"; path_exists(path))
    source.jinja = read_bytes(path, kMostChatBytes), source.file = path.string();
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto path = place / name;
    if (!source.jinja.empty() || !path_exists(path)) continue;
    const auto json = read_json_file(path, kMostChatBytes);
    if (json.is_object() && json.contains("chat_template"))
      read_templates(json["chat_template"], path.string(), source);
  }
  if (source.jinja.empty()) return {};
  read_token_texts(place / "tokenizer_config.json", source.tokens);
  read_token_texts(place / "special_tokens_map.json", source.tokens);
  return source;
}

FolderChat::FolderChat(ChatSource source, const OrderedJson& kwargs, std::time_t now)
    : source_(std::move(source)), kwargs_(jinja::variables_of(kwargs)) {
  const auto add = [&](const std::string& name, const std::string& jinja) {
    try {
      templates_.emplace(name, JinjaTemplate(jinja, source_.tokens, now));
    } catch (const std::runtime_error& error) {
      templates_.emplace(name, std::string(error.what()));
    }
  };
  add("", source_.jinja);
  for (const auto& [name, jinja] : source_.named) add(name, jinja);
}

bool FolderChat::passes(const ChatLine& line, const std::string& variable) const {
  if (line.variables.contains(variable)) return !line.variables[variable].is_null();
  return std::ranges::any_of(kwargs_,
                             [&](const auto& each) { return each.first == variable && !each.second.is_none(); });
}

const JinjaTemplate& FolderChat::template_for(const ChatLine& line) const {
  auto found = passes(line, "tools") ? templates_.find("tool_use") : templates_.end();
  if (found == templates_.end() && passes(line, "documents")) found = templates_.find("rag");
  if (found == templates_.end()) found = templates_.find("");
  if (const auto* fault = std::get_if<std::string>(&found->second))
    throw InputError({source_.file, "the chat template cannot be read: " + *fault, "a Jinja template",
                      "set data.chat_template to the name of a built-in template"});
  return std::get<JinjaTemplate>(found->second);
}

jinja::Variables FolderChat::variables_of(const ChatLine& line) const {
  jinja::Variables variables = kwargs_, of_line = jinja::variables_of(line.variables);
  variables.insert(variables.end(), std::make_move_iterator(of_line.begin()), std::make_move_iterator(of_line.end()));
  return variables;
}

ChatResult FolderChat::prompt(const OrderedJson& line) const {
  const ChatLine chat = read_chat_line(line, /*loss_on=*/"");
  if (!chat.fault.empty()) return {{}, chat.fault, chat.expected};
  auto written = template_for(chat).write(jinja::value_of(chat.messages), variables_of(chat), /*prompts=*/true);
  return {{.text = std::move(written.text), .images = chat.images}, std::move(written.fault)};
}

ChatResult FolderChat::write(const OrderedJson& line, const std::string& loss_on) const {
  const ChatLine chat = read_chat_line(line, loss_on);
  if (!chat.fault.empty()) return {{}, chat.fault, chat.expected};
  const JinjaTemplate& jinja = template_for(chat);
  const jinja::Variables variables = variables_of(chat);
  const SaidFinder::Render render = [&](const jinja::Value& messages, bool prompts) {
    return jinja.write(messages, variables, prompts);
  };
  const jinja::Value messages = jinja::value_of(chat.messages);
  auto written = render(messages, /*prompts=*/false);
  ChatResult made{{.text = std::move(written.text), .images = chat.images}, std::move(written.fault)};
  if (!made.fault.empty() || loss_on == "all") return made;
  const auto end_token = source_.tokens.find("eos_token");
  const SaidFinder::Constants constants{end_token == source_.tokens.end() ? "" : end_token->second,
                                        jinja.constant_prompt()};
  made.fault = written.generated.empty() ? SaidFinder(chat, messages, render, constants).find(made.chat)
                                         : take_generated(chat, std::move(written.generated), made.chat);
  return made;
}

std::string time_in_chats(const std::string& tokenizer, const std::string& name, std::time_t now) {
  const auto source = name.empty() && !is_byte_tokenizer(tokenizer) ? read_chat_source(tokenizer) : std::nullopt;
  if (!source) return "";
  std::string templates = source->jinja;
  for (const auto& [other, jinja] : source->named) templates += jinja;
  if (templates.find("strftime_now") == std::string::npos) return "";
  // Directives with less than a day, and any that a template computes.
  for (const char* directive : {"%H", "%I", "%k", "%l", "%M", "%S", "%s", "%p", "%c", "%r", "%R", "%T", "%X", "%E",
                                "%O", "strftime_now(format"})
    if (templates.find(directive) != std::string::npos) return fmt::format("{}", now);
  return text_of_time(now, "%F");
}

std::optional<FolderChat> open_chat(const std::string& tokenizer, const std::string& name, const std::string& kwargs,
                                    std::time_t now) {
  std::optional<ChatSource> source;
  if (!is_byte_tokenizer(tokenizer)) source = read_chat_source(tokenizer);
  if (!name.empty()) {
    if (source) require_fitting_template(name, *source);
    source = ChatSource{.jinja = chat_template_text(name), .file = name};
  }
  if (!source) return {};
  return FolderChat(std::move(*source), OrderedJson::parse(kwargs.empty() ? "{}" : std::string_view(kwargs)), now);
}

}  // namespace gantry
