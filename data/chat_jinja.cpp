#include "gantry/data/chat_jinja.h"

#include <array>
#include <fmt/format.h>

namespace gantry {

namespace {

constexpr const char* kPrompts = "add_generation_prompt";

}  // namespace

std::string text_of_time(std::time_t now, const std::string& format) {
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 256> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), format.c_str(), &parts);
  return {text.data(), length};
}

JinjaTemplate::JinjaTemplate(const std::string& source, const std::map<std::string, std::string>& tokens,
                             std::time_t now)
    : template_(source), now_(now) {
  for (const auto& [name, text] : tokens) tokens_.emplace_back(name, jinja::Value::text(text));
  const auto first = source.find(kPrompts);
  if (first != std::string::npos && source.find(kPrompts, first + 1) == std::string::npos)
    constant_prompt_ = template_.constant_end(kPrompts);
}

JinjaTemplate::Written JinjaTemplate::write(const jinja::Value& messages, const jinja::Variables& variables,
                                            bool prompts) const {
  using jinja::Value;
  jinja::Variables values = {{"tools", Value()}, {"documents", Value()}, {kPrompts, Value::boolean(prompts)}};
  values.insert(values.end(), tokens_.begin(), tokens_.end());
  values.insert(values.end(), variables.begin(), variables.end());
  values.emplace_back("messages", messages);
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
