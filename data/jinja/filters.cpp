#include "gantry/data/jinja/filters.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <unordered_map>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

// --- Numbers and values of every type ---

Value filter_default(const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool is_missing = value.is_undefined() || (bound.flag(1, false) && !value.truth());
  return is_missing ? bound.get(0, Value::text("")) : value;
}

Value filter_abs(const Value& value, const Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  return absolute(value);
}

Value filter_round(const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::string method = bound.text(1, "common");
  const Integer digits = bound.whole(0, 0);
  if (method == "common") return rounded(value, digits);
  if (method != "ceil" && method != "floor") throw RenderError("method must be common, ceil or floor");
  const Value unit = power(Value::integer(10), Value::integer(digits));
  const Value scaled = multiply(value, unit);
  const double number = scaled.number();
  const Value whole =
      scaled.is_int() ? scaled : Value::integer(truncated(method == "ceil" ? std::ceil(number) : std::floor(number)));
  return divide(whole, unit);
}

Value integer_of(const Value& value, Integer base) {
  if (value.is_int()) return Value::integer(value.whole());
  if (value.is_real()) return std::isfinite(value.number()) ? Value::integer(truncated(value.number())) : Value();
  if (!value.is_text()) return {};
  if (const auto read = read_integer(value.bytes(), static_cast<int>(base))) return Value::integer(*read);
  const auto real = read_real(value.bytes());
  return real && std::isfinite(*real) ? Value::integer(truncated(*real)) : Value();
}

Value filter_int(const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (value.is_undefined()) throw RenderError(value.why());
  const Value made = integer_of(value, bound.whole(1, 10));
  return made.is_none() ? bound.get(0, Value::integer(0)) : made;
}

Value filter_float(const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (value.is_undefined()) throw RenderError(value.why());
  if (value.is_number()) return Value::real(value.number());
  const auto read = value.is_text() ? read_real(value.bytes()) : std::nullopt;
  return read ? Value::real(*read) : bound.get(0, Value::real(0));
}

Value filter_string(const Value& value, const Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return value.is_text() ? value : Value::text(str(value));
}

Value filter_attr(const Value& value, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"});
  const std::string name = str(bound.required(0));
  // Only attributes: the entry of a dict is not an attribute.
  if (value.is_mapping() && !own_attribute(value, name))
    return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name));
  return attribute_of(value, name);
}

JsonStyle json_style(const Bound& bound) {
  JsonStyle style;
  style.is_ascii = bound.flag(0, false);
  if (const Value indent = bound.get(1); !indent.is_none()) {
    if (!indent.is_text() && !indent.is_int()) throw RenderError("tojson: 'indent' is neither an int nor a str");
    const Integer spaces = indent.is_text() ? 0 : std::clamp<Integer>(indent.whole(), 0, 1 << 20);
    style.indent = indent.is_text() ? indent.bytes() : std::string(static_cast<std::size_t>(spaces), ' ');
    style.between_items = ",";
  }
  if (const Value separators = bound.get(2); !separators.is_none()) {
    const Values both = entries_of(separators);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text())
      throw RenderError("tojson: 'separators' are not two strings");
    style.between_items = both[0].bytes();
    style.after_key = both[1].bytes();
  }
  style.sorts_keys = bound.flag(3, false);
  return style;
}

// The variant of transformers, which does not escape HTML.
Value filter_tojson(const Value& value, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return Value::text(to_json(value, json_style(bound)));
}

Value filter_escape(const Value& value, const Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  return value.is_safe() ? value : Value::text(escaped(str(value)), /*is_safe=*/true);
}

Value filter_forceescape(const Value& value, const Arguments& arguments) {
  const Bound bound("forceescape", arguments, {});
  return Value::text(escaped(str(value)), /*is_safe=*/true);
}

Value filter_safe(const Value& value, const Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return Value::text(str(value), /*is_safe=*/true);
}

Value filter_pprint(const Value& value, const Arguments& arguments) {
  const Bound bound("pprint", arguments, {});
  const std::string made = repr(value);
  if (made.size() > 79) throw RenderError("pprint of more than one line is not supported");
  return Value::text(made);
}

constexpr NamedFilter kFilters[] = {
    {"default", filter_default}, {"d", filter_default},    {"abs", filter_abs},
    {"round", filter_round},     {"int", filter_int},      {"float", filter_float},
    {"string", filter_string},   {"attr", filter_attr},    {"tojson", filter_tojson},
    {"escape", filter_escape},   {"e", filter_escape},     {"forceescape", filter_forceescape},
    {"safe", filter_safe},       {"pprint", filter_pprint}};

using Registry = std::unordered_map<std::string, Value (*)(const Value&, const Arguments&)>;

const Registry& registry() {
  static const Registry kAll = [] {
    Registry all;
    for (const auto& [name, apply] : kFilters) all.emplace(name, apply);
    for (const auto* lists : {kTextFilters, kListFilters})
      for (; lists->name != nullptr; ++lists) all.emplace(lists->name, lists->apply);
    return all;
  }();
  return kAll;
}

}  // namespace

bool is_filter(const std::string& name) { return registry().contains(name); }

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = registry().find(name);
  if (found == registry().end()) throw RenderError(fmt::format("no filter named '{}'", name));
  const Nesting nesting;
  spend_steps(1);
  try {
    return found->second(value, arguments);
  } catch (const RaisedError&) {
    throw;
  } catch (const RenderError& error) {
    const std::string fault = error.what();
    throw RenderError(fault.starts_with("filter ") ? fault : fmt::format("filter '{}': {}", name, fault));
  }
}

Value value_at(const Value& item, const Value& path, const Value* fallback) {
  const auto taken = [&](const Value& from, const Value& key) {
    Value found = item_of(from, key);
    return fallback && found.is_undefined() ? *fallback : found;
  };
  if (path.is_none()) return item;
  if (!path.is_text()) return taken(item, path);
  Value made = item;
  std::string_view rest = path.bytes();
  while (true) {
    const auto dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const auto number = has_class(part, "digit") ? read_integer(part, 10) : std::nullopt;
    made = taken(made, number ? Value::integer(*number) : Value::text(part));
    if (dot == std::string_view::npos) return made;
    rest = rest.substr(dot + 1);
  }
}

}  // namespace gantry::jinja
