#include "gantry/data/jinja/object.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

constexpr Integer kLargestRange = 100000;

int deepest_of(const Values& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return deepest + 1;
}

Values keys_of(const Mapping& mapping) {
  Values keys;
  for (const auto& [key, value] : mapping.items()) keys.push_back(key);
  return keys;
}

// Entries of an iterator that is left empty.
Values rest_of(Iterator& iterator) {
  Values items;
  while (auto next = iterator.next()) items.push_back(std::move(*next));
  return items;
}

Values numbers_of(const Range& range, std::size_t size) {
  Values numbers;
  for (std::size_t i = 0; i < size; ++i) numbers.push_back(range.at(i));
  return numbers;
}

}  // namespace

Value Object::call(const Arguments&) { throw RenderError(fmt::format("'{}' object is not callable", type_name())); }

Iterator::Iterator(Values items) : items_(std::move(items)), depth_(deepest_of(items_)) {
  spend_bytes(48 * items_.size());
}

std::optional<Value> Iterator::next() {
  if (next_ == items_.size()) return {};
  return std::move(items_[next_++]);
}

Range::Range(Integer from, Integer to, Integer by) : start(from), stop(to), step(by) {
  const Integer size = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  if (size > kLargestRange) throw RenderError("a range of more than 100000 numbers");
  size_ = static_cast<std::size_t>(std::max<Integer>(size, 0));
}

Value Range::at(std::size_t index) const { return Value::integer(start + static_cast<Integer>(index) * step); }

std::optional<Value> Range::attribute(const std::string& name) {
  if (name == "start") return Value::integer(start);
  if (name == "stop") return Value::integer(stop);
  if (name == "step") return Value::integer(step);
  return {};
}

std::optional<std::string> Range::repr() {
  const std::string bounds = printed(start) + ", " + printed(stop);
  return "range(" + bounds + (step == 1 ? "" : ", " + printed(step)) + ")";
}

View::View(std::string type, Values items)
    : type_(std::move(type)), items_(std::move(items)), depth_(deepest_of(items_)) {}

std::optional<std::string> View::repr() { return type_ + "(" + jinja::repr(Value::list(items_)) + ")"; }

std::optional<Value> Namespace::attribute(const std::string& name) {
  for (const auto& [each, value] : values_)
    if (each == name) return value;
  return {};
}

std::optional<std::string> Namespace::repr() {
  Mapping mapping;
  for (const auto& [name, value] : values_) mapping.set(Value::text(name), value);
  return "<Namespace " + jinja::repr(Value::mapping(std::move(mapping))) + ">";
}

void Namespace::set(const std::string& name, Value value) {
  if (name.starts_with('_'))
    throw RenderError(fmt::format("a namespace has no attributes with an underscore in front, as '{}'", name));
  for (auto& [each, held] : values_)
    if (each == name) {
      held = std::move(value);
      return;
    }
  spend_bytes(96);
  values_.emplace_back(name, std::move(value));
}

Value function(std::string name, Function::Body body) {
  return Value::object(std::make_shared<Function>(std::move(name), std::move(body)));
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_sequence() || value.is_mapping() || value.as<Iterator>() ||
         value.as<Range>() || value.as<View>();
}

Values entries_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_text()) {
    Values items;
    for (const auto character : characters(value.bytes())) items.push_back(Value::text(std::string(character)));
    spend_steps(items.size());
    return items;
  }
  Values items;
  if (value.is_sequence())
    items = value.items();
  else if (value.is_mapping())
    items = keys_of(value.entries());
  else if (auto* iterator = value.as<Iterator>())
    items = rest_of(*iterator);
  else if (const auto* range = value.as<Range>())
    items = numbers_of(*range, *length_of(value));
  else if (const auto* view = value.as<View>())
    items = view->items();
  else
    throw RenderError(fmt::format("'{}' object is not iterable", value.type_name()));
  spend_steps(items.size());
  return items;
}

std::optional<std::size_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) {
    spend_steps(value.bytes().size() / 64);
    return count_code_points(value.bytes());
  }
  if (value.is_sequence()) return value.items().size();
  if (value.is_mapping()) return value.entries().size();
  auto* object = value.as<Object>();
  return object ? object->length() : std::nullopt;
}

}  // namespace gantry::jinja
