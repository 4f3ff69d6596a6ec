// Attributes, indexes and slices.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/object.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

Value no_such(const Value& value, const Value& key) {
  const std::string type = value.is_none() ? "None" : value.type_name() + " object";
  if (!key.is_text()) return Value::undefined(fmt::format("{} has no element {}", type, repr(key)));
  return Value::undefined(fmt::format("'{}' has no attribute {}", type, repr(key)));
}

bool changes(const Value& value, const std::string& name) {
  static constexpr std::array<std::string_view, 5> kOfMapping = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::array<std::string_view, 8> kOfList = {"append", "clear", "pop",    "reverse",
                                                              "insert", "sort",  "extend", "remove"};
  if (value.is_mapping()) return std::ranges::find(kOfMapping, name) != kOfMapping.end();
  return value.is_list() && std::ranges::find(kOfList, name) != kOfList.end();
}

Value unsafe(const Value& value, const std::string& name) {
  return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, value.type_name()));
}

// The entry, as value[key] of Python; nothing where that raises TypeError or LookupError.
std::optional<Value> entry_of(const Value& value, const Value& key) {
  if (value.is_mapping()) {
    if (key.is_list() || key.is_mapping()) return {};
    const Value* found = value.entries().find(key);
    return found ? std::optional(*found) : std::nullopt;
  }
  const auto length =
      key.is_int() && (value.is_text() || value.is_sequence() || value.as<Range>()) ? length_of(value) : std::nullopt;
  if (!length) return {};
  const Integer size = static_cast<Integer>(*length), stated = key.whole();
  const Integer index = stated < 0 ? stated + size : stated;
  if (index < 0 || index >= size) return {};
  const auto place = static_cast<std::size_t>(index);
  if (value.is_sequence()) return value.items()[place];
  if (const auto* range = value.as<Range>()) return range->at(place);
  const std::size_t begin = byte_of(value.bytes(), place);
  const std::string_view rest = std::string_view(value.bytes()).substr(begin, 4);
  return Value::text(std::string(rest.substr(0, byte_of(rest, 1))));
}

// The bounds of a slice within `size` entries, by Python's rules.
struct Bounds {
  Integer start, stop, step;
};

Integer bound(const Value& stated, Integer size, Integer step, Integer left_out) {
  if (stated.is_none()) return left_out;
  Integer place = stated.whole();
  if (place < 0) place += size;
  const Integer least = step < 0 ? -1 : 0, most = step < 0 ? size - 1 : size;
  return std::clamp(place, least, std::max(least, most));
}

Bounds bounds_of(const Value& start, const Value& stop, const Value& step, Integer size) {
  const Integer by = step.is_none() ? 1 : step.whole();
  if (by == 0) throw RenderError("slice step cannot be zero");
  return {bound(start, size, by, by < 0 ? size - 1 : 0), bound(stop, size, by, by < 0 ? -1 : size), by};
}

template <class Items, class Made>
Made taken(const Items& items, const Bounds& bounds, Made made) {
  for (Integer at = bounds.start; bounds.step > 0 ? at < bounds.stop : at > bounds.stop; at += bounds.step)
    made.push_back(items[static_cast<std::size_t>(at)]);
  return made;
}

Value slice_of_text(const std::string& text, const Bounds& bounds) {
  spend_steps(text.size() / 32);
  if (bounds.step == 1) {
    if (bounds.stop <= bounds.start) return Value::text("");
    const std::size_t begin = byte_of(text, static_cast<std::size_t>(bounds.start));
    const std::string_view rest = std::string_view(text).substr(begin);
    return Value::text(
        std::string(rest.substr(0, byte_of(rest, static_cast<std::size_t>(bounds.stop - bounds.start)))));
  }
  return Value::text(utf8(taken(code_points(text), bounds, std::u32string())));
}

Value slice_of_range(const Range& range, const Bounds& bounds) {
  return Value::object(std::make_shared<Range>(range.start + bounds.start * range.step,
                                               range.start + bounds.stop * range.step, range.step * bounds.step));
}

}  // namespace

Value attribute_of(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw RenderError(value.why());
  if (changes(value, name) || name.starts_with("__")) return unsafe(value, name);
  if (auto own = own_attribute(value, name)) return *own;
  if (auto* object = value.as<Object>())
    if (auto found = object->attribute(name)) return *found;
  if (value.is_mapping())
    if (const Value* found = value.entries().find(name)) return *found;
  return no_such(value, Value::text(name));
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) throw RenderError(value.why());
  if (auto entry = entry_of(value, key)) return *entry;
  if (!key.is_text()) return no_such(value, key);
  const std::string& name = key.bytes();
  if (changes(value, name) || name.starts_with("__")) return unsafe(value, name);
  if (auto own = own_attribute(value, name)) return *own;
  if (auto* object = value.as<Object>())
    if (auto found = object->attribute(name)) return *found;
  return no_such(value, key);
}

Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) throw RenderError(value.why());
  const auto is_bound = [](const Value& each) { return each.is_none() || each.is_int(); };
  const auto* range = value.as<Range>();
  if (!(value.is_text() || value.is_sequence() || range) || !is_bound(start) || !is_bound(stop) || !is_bound(step))
    return Value::undefined(fmt::format("{} has no such slice", value.type_name()));
  const Bounds bounds = bounds_of(start, stop, step, static_cast<Integer>(*length_of(value)));
  if (value.is_text()) return slice_of_text(value.bytes(), bounds);
  if (range) return slice_of_range(*range, bounds);
  spend_steps(value.items().size() / 8);
  Values items = taken(value.items(), bounds, Values());
  return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace gantry::jinja
