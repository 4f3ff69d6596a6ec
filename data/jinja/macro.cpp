#include "gantry/data/jinja/macro.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/print.h"

namespace gantry::jinja {
namespace {

using NamedValues = std::vector<std::pair<std::string, Value>>;

std::optional<Value> taken_out(NamedValues& named, const std::string& name) {
  const auto found = std::ranges::find_if(named, [&](const auto& each) { return each.first == name; });
  if (found == named.end()) return {};
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

}  // namespace

std::optional<std::string> Macro::repr() {
  return statement_.text.empty() ? "<Macro anonymous>" : "<Macro " + jinja::repr(Value::text(statement_.text)) + ">";
}

std::optional<Value> Macro::attribute(const std::string& name) {
  if (name == "name") return statement_.text.empty() ? Value() : Value::text(statement_.text);
  if (name == "catch_kwargs") return Value::boolean(statement_.uses_named);
  if (name == "catch_varargs") return Value::boolean(statement_.uses_values);
  if (name == "caller") return Value::boolean(statement_.uses_caller);
  if (name != "arguments") return {};
  Values names;
  for (const auto& parameter : statement_.parameters) names.push_back(Value::text(parameter.name));
  return Value::tuple(std::move(names));
}

Value Macro::call(const Arguments& arguments) {
  const Nesting nesting;
  const auto scope = std::make_shared<Scope>();
  scope->parent = scope_.lock();
  NamedValues named = arguments.named;
  bind_rest(arguments, *scope, named);
  bind(arguments, *scope, named);
  // Defaults may name parameters that precede them.
  for (const auto& parameter : statement_.parameters) {
    if (std::ranges::any_of(scope->names, [&](const auto& each) { return each.first == parameter.name; })) continue;
    scope->set(parameter.name, parameter.has_default
                                   ? interpreter_.evaluate(parameter.fallback, scope)
                                   : Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
  }
  return Value::text(interpreter_.call_body(statement_, scope));
}

void Macro::bind(const Arguments& arguments, Scope& scope, NamedValues& named) const {
  const auto& parameters = statement_.parameters;
  for (std::size_t i = 0; i < std::min(arguments.values.size(), parameters.size()); ++i)
    scope.set(parameters[i].name, arguments.values[i]);
  for (std::size_t i = arguments.values.size(); i < parameters.size(); ++i)
    if (auto value = taken_out(named, parameters[i].name)) scope.set(parameters[i].name, std::move(*value));
  if (statement_.uses_named) {
    Mapping rest;
    for (auto& [name, value] : named) rest.set(Value::text(name), std::move(value));
    scope.set("kwargs", Value::mapping(std::move(rest)));
  } else if (!named.empty()) {
    throw RenderError(fmt::format("macro '{}' takes no keyword argument '{}'", statement_.text, named[0].first));
  }
}

// caller and varargs.
void Macro::bind_rest(const Arguments& arguments, Scope& scope, NamedValues& named) const {
  const auto& parameters = statement_.parameters;
  const bool states_caller = std::ranges::any_of(parameters, [](const auto& each) { return each.name == "caller"; });
  if (statement_.uses_caller && !states_caller) {
    auto caller = taken_out(named, "caller");
    scope.set("caller", caller ? std::move(*caller) : Value::undefined("no caller defined"));
  }
  if (arguments.values.size() > parameters.size() && !statement_.uses_values)
    throw RenderError(fmt::format("macro '{}' takes not more than {} argument(s)", statement_.text, parameters.size()));
  if (!statement_.uses_values) return;
  const auto first =
      arguments.values.begin() + static_cast<std::ptrdiff_t>(std::min(parameters.size(), arguments.values.size()));
  scope.set("varargs", Value::tuple(Values(first, arguments.values.end())));
}

}  // namespace gantry::jinja
