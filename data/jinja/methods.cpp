#include "gantry/data/jinja/methods.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/print.h"

namespace gantry::jinja {
namespace {

using Method = Value (*)(const Value&, const Arguments&);

struct Named {
  const char* name;
  Method method;
};

// --- dict ---

Value mapping_keys(const Value& value, const Arguments& arguments) {
  const Bound bound("keys()", arguments, {});
  return Value::object(std::make_shared<View>("dict_keys", entries_of(value)));
}

Value mapping_values(const Value& value, const Arguments& arguments) {
  const Bound bound("values()", arguments, {});
  Values items;
  for (const auto& [key, each] : value.entries().items()) items.push_back(each);
  return Value::object(std::make_shared<View>("dict_values", std::move(items)));
}

Value mapping_items(const Value& value, const Arguments& arguments) {
  const Bound bound("items()", arguments, {});
  Values items;
  for (const auto& [key, each] : value.entries().items()) items.push_back(Value::tuple({key, each}));
  return Value::object(std::make_shared<View>("dict_items", std::move(items)));
}

Value mapping_get(const Value& value, const Arguments& arguments) {
  const Bound bound("get()", arguments, {"key", "default"});
  if (!arguments.named.empty()) throw RenderError("get() takes no keyword arguments");
  const Value* found = value.entries().find(bound.required(0));
  return found ? *found : bound.get(1);
}

Value same_value(const Value& value, const Arguments& arguments) {
  const Bound bound("copy()", arguments, {});
  return value;
}

Value mapping_from_keys(const Value&, const Arguments& arguments) {
  const Bound bound("fromkeys()", arguments, {"keys", "value"});
  Mapping made;
  for (const Value& key : entries_of(bound.required(0))) made.set(key, bound.get(1));
  return Value::mapping(std::move(made));
}

// --- list and tuple ---

Value sequence_index(const Value& value, const Arguments& arguments) {
  const Bound bound("index()", arguments, {"value", "start", "stop"});
  const Value part = slice_of(value, bound.get(1), bound.get(2), Value());
  const Integer size = static_cast<Integer>(value.items().size());
  Integer first = bound.whole(1, 0);
  if (first < 0) first = std::max<Integer>(0, first + size);
  for (std::size_t i = 0; i < part.items().size(); ++i)
    if (equal(part.items()[i], bound.required(0))) return Value::integer(first + static_cast<Integer>(i));
  throw RenderError(fmt::format("{} is not in list", repr(bound.required(0))));
}

Value sequence_count(const Value& value, const Arguments& arguments) {
  const Bound bound("count()", arguments, {"value"});
  const auto is_it = [&](const Value& each) { return equal(each, bound.required(0)); };
  return Value::integer(std::ranges::count_if(entries_of(value), is_it));
}

Value range_index(const Value& value, const Arguments& arguments) {
  const Bound bound("index()", arguments, {"value"});
  const Values numbers = entries_of(value);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (equal(numbers[i], bound.required(0))) return Value::integer(static_cast<Integer>(i));
  throw RenderError(fmt::format("{} is not in range", repr(bound.required(0))));
}

// --- int and float ---

Value is_integral(const Value& value, const Arguments& arguments) {
  const Bound bound("is_integer()", arguments, {});
  const double number = value.number();
  return Value::boolean(std::isfinite(number) && std::floor(number) == number);
}

Value bit_length(const Value& value, const Arguments& arguments) {
  const Bound bound("bit_length()", arguments, {});
  Integer rest = value.whole() < 0 ? -value.whole() : value.whole(), bits = 0;
  for (; rest != 0; rest >>= 1) ++bits;
  return Value::integer(bits);
}

constexpr Named kOfMapping[] = {{"keys", mapping_keys}, {"values", mapping_values}, {"items", mapping_items},
                                {"get", mapping_get},   {"copy", same_value},       {"fromkeys", mapping_from_keys}};
constexpr Named kOfList[] = {{"index", sequence_index}, {"count", sequence_count}, {"copy", same_value}};
constexpr Named kOfTuple[] = {{"index", sequence_index}, {"count", sequence_count}};
constexpr Named kOfRange[] = {{"index", range_index}, {"count", sequence_count}};
constexpr Named kOfReal[] = {{"is_integer", is_integral}};
constexpr Named kOfWhole[] = {{"bit_length", bit_length}};

template <std::size_t kCount>
Method found_in(const Named (&methods)[kCount], const std::string& name) {
  const auto* found = std::ranges::find_if(methods, [&](const Named& each) { return each.name == name; });
  return found == std::end(methods) ? nullptr : found->method;
}

Method method_of(const Value& value, const std::string& name) {
  if (value.is_text()) return text_method(name);
  if (value.is_mapping()) return found_in(kOfMapping, name);
  if (value.is_sequence()) return value.is_tuple() ? found_in(kOfTuple, name) : found_in(kOfList, name);
  if (value.is_real()) return found_in(kOfReal, name);
  if (value.is_int()) return found_in(kOfWhole, name);
  return value.as<Range>() ? found_in(kOfRange, name) : nullptr;
}

}  // namespace

bool has_method(const Value& value, const std::string& name) { return method_of(value, name) != nullptr; }

Value call_method(const Value& value, const std::string& name, const Arguments& arguments) {
  return method_of(value, name)(value, arguments);
}

std::optional<Value> own_attribute(const Value& value, const std::string& name) {
  if (const Method method = method_of(value, name))
    return function(name, [value, method](const Arguments& arguments) { return method(value, arguments); });
  if (value.is_sequence() && value.sequence().is_group && (name == "grouper" || name == "list"))
    return value.items()[name == "grouper" ? 0 : 1];
  if (value.is_int() && (name == "real" || name == "numerator")) return Value::integer(value.whole());
  if (value.is_int() && name == "imag") return Value::integer(0);
  if (value.is_int() && name == "denominator") return Value::integer(1);
  return {};
}

}  // namespace gantry::jinja
