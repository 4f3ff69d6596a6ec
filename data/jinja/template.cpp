#include "gantry/data/jinja/template.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/data/jinja/interpreter.h"
#include "gantry/data/jinja/syntax.h"

namespace gantry::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value value_of(const Json& json) {
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

std::string in_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  return text;
}

}  // namespace

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

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::render(const Json& variables, const std::function<std::string(const std::string&)>& format_time,
                          const Limits& limits) const {
  const Meter meter(limits);
  const auto globals = std::make_shared<Scope>();
  Interpreter interpreter(globals, limits);
  try {
    add_globals(*globals, format_time, [&](std::shared_ptr<Namespace> made) { interpreter.keep(std::move(made)); });
    for (const auto& [name, value] : variables.items()) globals->set(name, value_of(value));
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
