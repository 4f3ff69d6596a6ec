#include "gantry/data/jinja/template.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/data/jinja/interpreter.h"
#include "gantry/data/jinja/syntax.h"

namespace gantry::jinja {
namespace {

std::string in_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  return text;
}

}  // namespace

Value value_of(const nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  const Nesting nesting;
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(json.get<std::uint64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::text(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      Values items;
      for (const Json& item : json) items.push_back(value_of(item));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      Mapping mapping;
      for (const auto& [key, item] : json.items()) mapping.set(Value::text(key), value_of(item));
      return Value::mapping(std::move(mapping));
    }
    default:
      return {};
  }
}

Variables variables_of(const nlohmann::ordered_json& object) {
  Variables made;
  for (const auto& [name, value] : object.items()) made.emplace_back(name, value_of(value));
  return made;
}

struct Template::Tree {
  std::vector<Statement> statements;
};

Template::Template(const std::string& source) {
  try {
    tree_ = std::make_unique<Tree>(Tree{parsed(source)});
  } catch (const RenderError& error) {
    throw RenderError(in_one_line(error.what()));
  }
}

std::optional<std::string> Template::constant_end(const std::string& name) const {
  if (tree_->statements.empty()) return {};
  const Statement& last = tree_->statements.back();
  if (last.kind != Statement::Kind::kIf || !last.otherwise.empty()) return {};
  const Expression& condition = last.expressions[0];
  if (condition.kind != Expression::Kind::kName || condition.name != name) return {};
  std::string text;
  for (const Statement& part : last.body) {
    if (part.kind != Statement::Kind::kText && part.kind != Statement::Kind::kOutput) return {};
    text += part.text;
    for (const Expression& each : part.expressions) {
      if (each.kind != Expression::Kind::kConstant || !each.value.is_text()) return {};
      text += each.value.bytes();
    }
  }
  return text;
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::render(const Variables& variables, const std::function<std::string(const std::string&)>& format_time,
                          const Limits& limits) const {
  const Meter meter(limits);
  const auto globals = std::make_shared<Scope>();
  Interpreter interpreter(globals, limits);
  try {
    add_globals(*globals, format_time, [&](std::shared_ptr<Namespace> made) { interpreter.keep(std::move(made)); });
    for (const auto& [name, value] : variables) globals->set(name, value);
    std::string text = interpreter.run(tree_->statements);
    return {std::move(text), interpreter.generated()};
  } catch (const RaisedError& error) {
    throw RaisedError(in_one_line(error.what()));
  } catch (const RenderError& error) {
    const auto [row, column] = interpreter.place();
    throw RenderError(fmt::format("row {}, column {}: {}", row, column, in_one_line(error.what())));
  }
}

}  // namespace gantry::jinja
