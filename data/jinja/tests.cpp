// Tests of jinja2: `value is name`.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/filters.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

// Tests without an argument.
struct PlainTest {
  const char* name;
  bool (*holds)(const Value& value);
};

bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_sequence() || value.is_mapping() || value.as<Range>();
}

bool is_callable(const Value& value) {
  auto* object = value.as<Object>();
  return value.is_undefined() || (object && object->is_callable());
}

constexpr PlainTest kPlain[] = {
    {"odd", [](const Value& value) { return equal(modulo(value, Value::integer(2)), Value::integer(1)); }},
    {"even", [](const Value& value) { return equal(modulo(value, Value::integer(2)), Value::integer(0)); }},
    {"defined", [](const Value& value) { return !value.is_undefined(); }},
    {"undefined", [](const Value& value) { return value.is_undefined(); }},
    {"none", [](const Value& value) { return value.is_none(); }},
    {"boolean", [](const Value& value) { return value.is_boolean(); }},
    {"true", [](const Value& value) { return value.is_boolean() && value.truth(); }},
    {"false", [](const Value& value) { return value.is_boolean() && !value.truth(); }},
    {"integer", [](const Value& value) { return value.is_integer(); }},
    {"float", [](const Value& value) { return value.is_real(); }},
    {"number", [](const Value& value) { return value.is_number(); }},
    {"string", [](const Value& value) { return value.is_text(); }},
    {"mapping", [](const Value& value) { return value.is_mapping(); }},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"callable", is_callable},
    {"escaped", [](const Value& value) { return value.is_safe(); }},
    {"lower", [](const Value& value) { return has_class(str(value), "lower"); }},
    {"upper", [](const Value& value) { return has_class(str(value), "upper"); }},
    {"filter", [](const Value& value) { return value.is_text() && is_filter(value.bytes()); }},
    {"test", [](const Value& value) { return value.is_text() && is_test(value.bytes()); }}};

// Tests with one argument.
struct PairTest {
  std::array<const char*, 3> names;  // some null
  bool (*holds)(const Value& value, const Value& other);
};

constexpr PairTest kPairs[] = {
    {{"==", "eq", "equalto"}, equal},
    {{"!=", "ne"}, [](const Value& value, const Value& other) { return !equal(value, other); }},
    {{">", "gt", "greaterthan"}, [](const Value& value, const Value& other) { return less(other, value); }},
    {{"<", "lt", "lessthan"}, less},
    {{">=", "ge"}, [](const Value& value, const Value& other) { return less(other, value) || equal(value, other); }},
    {{"<=", "le"}, [](const Value& value, const Value& other) { return less(value, other) || equal(value, other); }},
    {{"in"}, [](const Value& value, const Value& other) { return contains(other, value); }},
    {{"sameas"}, [](const Value& value, const Value& other) { return value.same_as(other); }},
    {{"divisibleby"},
     [](const Value& value, const Value& other) { return equal(modulo(value, other), Value::integer(0)); }}};

const PlainTest* plain_test(const std::string& name) {
  const auto* found = std::ranges::find_if(kPlain, [&](const PlainTest& each) { return each.name == name; });
  return found == std::end(kPlain) ? nullptr : found;
}

const PairTest* pair_test(const std::string& name) {
  const auto* found = std::ranges::find_if(kPairs, [&](const PairTest& each) {
    return std::ranges::any_of(each.names, [&](const char* known) { return known != nullptr && name == known; });
  });
  return found == std::end(kPairs) ? nullptr : found;
}

}  // namespace

bool is_test(const std::string& name) { return plain_test(name) || pair_test(name); }

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const Nesting nesting;
  spend_steps(1);
  if (const PlainTest* plain = plain_test(name)) {
    const Bound bound("test '" + name + "'", arguments, {});
    return plain->holds(value);
  }
  const PairTest* pair = pair_test(name);
  if (!pair) throw RenderError(fmt::format("no test named '{}'", name));
  const Bound bound("test '" + name + "'", arguments, {"other"});
  return pair->holds(value, bound.required(0));
}

}  // namespace gantry::jinja
