#include "gantry/data/chat_jinja.h"

#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gantry {

std::string text_of_time(std::time_t now, const std::string& format) {
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 256> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), format.c_str(), &parts);
  return {text.data(), length};
}

JinjaTemplate::JinjaTemplate(const std::string& source, std::map<std::string, std::string> tokens, std::time_t now)
    : template_(source), tokens_(std::move(tokens)), now_(now) {}

JinjaTemplate::Written JinjaTemplate::write(const nlohmann::ordered_json& variables, bool prompts) const {
  nlohmann::ordered_json values = {
      {"messages", nullptr}, {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", prompts}};
  for (const auto& [name, text] : tokens_) values[name] = text;
  for (const auto& [name, value] : variables.items()) values[name] = value;
  try {
    auto made = template_.render(values, [this](const std::string& format) { return text_of_time(now_, format); });
    return {std::move(made.text), std::move(made.generated), ""};
  } catch (const jinja::RaisedError& error) {
    return {"", {}, fmt::format("the chat template rejects the messages ({})", error.what())};
  } catch (const jinja::RenderError& error) {
    return {"", {}, fmt::format("the chat template fails on the messages ({})", error.what())};
  }
}

}  // namespace gantry
