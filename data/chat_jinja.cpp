// The one source that includes minja, which takes as long to compile as a dozen others.
#include "gantry/data/chat_jinja.h"

#include <algorithm>
#include <array>
#include <minja/minja.hpp>
#include <optional>
#include <stdexcept>

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestComment = 16 << 10;

// Minja reads comments by std::regex, whose stack grows with each character.
const std::string& without_long_comments(const std::string& source) {
  for (auto begin = source.find("{#"); begin != std::string::npos;) {
    const auto end = std::min(source.find("#}", begin), source.size());
    if (end - begin > kLongestComment)
      throw std::runtime_error("a comment of more than " + std::to_string(kLongestComment) + " characters");
    begin = source.find("{#", end);
  }
  return source;
}

// Minja adds the place in the template, and lines of it.
std::string first_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  while (!text.empty() && (text.back() == ':' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string joined_lines(std::string text) {
  for (char& character : text)
    if (static_cast<unsigned char>(character) < ' ') character = ' ';
  return text;
}

std::string text_of_time(std::time_t now, const std::string& format) {
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 256> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), format.c_str(), &parts);
  return {text.data(), length};
}

minja::Value one_text(const std::function<minja::Value(const std::string&)>& call, const char* name) {
  return minja::Value::callable(
      [call, name](const std::shared_ptr<minja::Context>&, minja::ArgumentsValue& arguments) -> minja::Value {
        arguments.expectArgs(name, {1, 1}, {0, 0});
        return call(arguments.args[0].to_str());
      });
}

}  // namespace

struct JinjaTemplate::Parsed {
  std::shared_ptr<minja::TemplateNode> root;
  std::map<std::string, std::string> tokens;
  std::time_t now;
};

JinjaTemplate::JinjaTemplate(const std::string& source, const std::map<std::string, std::string>& tokens,
                             std::time_t now) try
    : parsed_(std::make_unique<Parsed>(Parsed{
          .root = minja::Parser::parse(without_long_comments(source),
                                       {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false}),
          .tokens = tokens,
          .now = now})) {
} catch (const std::exception& error) {
  throw std::runtime_error(first_line(error.what()));
}

JinjaTemplate::~JinjaTemplate() = default;

JinjaTemplate::Written JinjaTemplate::write(const Json& messages, const Json& tools, bool prompts) const {
  Json values = {{"messages", messages}, {"tools", tools}, {"add_generation_prompt", prompts}};
  // A name without a value would be "None" where the template adds it to a text.
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    values[name] = "";
  for (const auto& [name, text] : parsed_->tokens) values[name] = text;
  const auto context = minja::Context::make(minja::Value(values));
  std::optional<std::string> raised;
  context->set("raise_exception", one_text(
                                      [&raised](const std::string& message) -> minja::Value {
                                        raised = message;
                                        throw std::runtime_error(message);
                                      },
                                      "raise_exception"));
  context->set(
      "strftime_now",
      one_text([this](const std::string& format) { return text_of_time(parsed_->now, format); }, "strftime_now"));
  try {
    return {parsed_->root->render(context), ""};
  } catch (const std::exception& error) {
    return {"", raised ? "the chat template rejects the messages (" + joined_lines(*raised) + ")"
                       : "the chat template fails on the messages (" + first_line(error.what()) + ")"};
  }
}

}  // namespace gantry
