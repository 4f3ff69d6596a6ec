// Filters of lists and mappings. Those that are generators in Python are done at once here, and give an iterator.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/filters.h"
#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/print.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

Value iterator(Values items) { return Value::object(std::make_shared<Iterator>(std::move(items))); }

Value without_case(const Value& value, bool keeps_case) {
  return value.is_text() && !keeps_case ? Value::text(lower(value.bytes())) : value;
}

// The arguments without the first `count` positional ones.
Arguments behind(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.values.erase(rest.values.begin(),
                    rest.values.begin() + static_cast<std::ptrdiff_t>(std::min(count, rest.values.size())));
  return rest;
}

Value filter_length(const Value& value, const Arguments& arguments) {
  const Bound bound("length", arguments, {});
  const auto length = length_of(value);
  if (!length) throw RenderError(fmt::format("object of type '{}' has no len()", value.type_name()));
  return Value::integer(static_cast<Integer>(*length));
}

Value filter_first(const Value& value, const Arguments& arguments) {
  const Bound bound("first", arguments, {});
  if (auto* rest = value.as<Iterator>()) {
    auto next = rest->next();
    return next ? *next : Value::undefined("No first item, sequence was empty.");
  }
  if (value.is_text() && !value.bytes().empty()) return item_of(value, Value::integer(0));
  const Values items = entries_of(value);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value filter_last(const Value& value, const Arguments& arguments) {
  const Bound bound("last", arguments, {});
  if (!length_of(value)) throw RenderError(fmt::format("'{}' object is not reversible", value.type_name()));
  const Values items = entries_of(value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_list(const Value& value, const Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return Value::list(entries_of(value));
}

Value filter_items(const Value& value, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  if (value.is_undefined()) return iterator({});
  if (!value.is_mapping()) throw RenderError("can only get item pairs from a mapping");
  Values items;
  for (const auto& [key, each] : value.entries().items()) items.push_back(Value::tuple({key, each}));
  return iterator(std::move(items));
}

Value filter_join(const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string between = bound.has(0) ? str(bound.get(0)) : "";
  std::string made;
  bool is_first = true;
  for (const Value& item : entries_of(value)) {
    if (!is_first) made += between;
    is_first = false;
    made += str(value_at(item, bound.get(1)));
    require_text_size(1, made.size());
  }
  return Value::text(std::move(made));
}

Value filter_reverse(const Value& value, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  if (value.is_text()) return slice_of(value, Value(), Value(), Value::integer(-1));
  if (value.is_undefined()) throw RenderError(value.why());
  const bool is_reversible = length_of(value).has_value();
  Values items = entries_of(value);
  std::ranges::reverse(items);
  return is_reversible ? iterator(std::move(items)) : Value::list(std::move(items));
}

Value filter_map(const Value& value, const Arguments& arguments) {
  if (!value.truth()) return iterator({});
  Values made;
  const Values items = entries_of(value);
  if (arguments.values.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"});
    if (!bound.has(0)) throw RenderError("it needs a filter or an attribute");
    const Value fallback = bound.get(1);
    for (const Value& item : items)
      made.push_back(value_at(item, bound.get(0), fallback.is_none() ? nullptr : &fallback));
    return iterator(std::move(made));
  }
  const std::string name = str(arguments.values[0]);
  const Arguments rest = behind(arguments, 1);
  for (const Value& item : items) made.push_back(apply_filter(name, item, rest));
  return iterator(std::move(made));
}

Value selected(const Value& value, const Arguments& arguments, bool keeps, bool by_attribute) {
  if (!value.truth()) return iterator({});
  const std::size_t first = by_attribute ? 1 : 0;
  if (arguments.values.size() < first) throw RenderError("missing parameter for attribute name");
  const bool has_test = arguments.values.size() > first;
  const std::string name = has_test ? str(arguments.values[first]) : "";
  const Arguments rest = behind(arguments, first + 1);
  Values made;
  for (const Value& item : entries_of(value)) {
    const Value looked_at = by_attribute ? value_at(item, arguments.values[0]) : item;
    if ((has_test ? apply_test(name, looked_at, rest) : looked_at.truth()) == keeps) made.push_back(item);
  }
  return iterator(std::move(made));
}

Value filter_select(const Value& value, const Arguments& arguments) { return selected(value, arguments, true, false); }
Value filter_reject(const Value& value, const Arguments& arguments) { return selected(value, arguments, false, false); }
Value filter_selectattr(const Value& value, const Arguments& arguments) {
  return selected(value, arguments, true, true);
}
Value filter_rejectattr(const Value& value, const Arguments& arguments) {
  return selected(value, arguments, false, true);
}

// Items with their sort keys. Sorting is stable in both directions, as in Python.
using Keyed = std::vector<std::pair<Value, Value>>;

void sort_keyed(Keyed& keyed, bool is_reverse) {
  // A merge sort ends even if a template makes the order inconsistent.
  std::ranges::stable_sort(keyed, [&](const auto& one, const auto& other) {
    return is_reverse ? less(other.first, one.first) : less(one.first, other.first);
  });
}

Values values_of(Keyed&& keyed) {
  Values made;
  for (auto& [key, value] : keyed) made.push_back(std::move(value));
  return made;
}

// The values at one path, or at several that commas separate, as a list.
Value sort_key(const Value& item, const Value& paths, bool keeps_case) {
  Values made;
  if (!paths.is_text()) return Value::list({without_case(value_at(item, paths), keeps_case)});
  std::string_view rest = paths.bytes();
  while (true) {
    const auto comma = rest.find(',');
    made.push_back(without_case(value_at(item, Value::text(std::string(rest.substr(0, comma)))), keeps_case));
    if (comma == std::string_view::npos) return Value::list(std::move(made));
    rest = rest.substr(comma + 1);
  }
}

Value filter_sort(const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  Keyed keyed;
  for (const Value& item : entries_of(value))
    keyed.emplace_back(sort_key(item, bound.get(2), bound.flag(1, false)), item);
  sort_keyed(keyed, bound.flag(0, false));
  return Value::list(values_of(std::move(keyed)));
}

Value filter_dictsort(const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") throw RenderError("you can only sort by either 'key' or 'value'");
  if (!value.is_mapping()) throw RenderError(fmt::format("a value of type {}; expected a dict", value.type_name()));
  Keyed keyed;
  for (const auto& [key, each] : value.entries().items())
    keyed.emplace_back(without_case(by == "key" ? key : each, bound.flag(0, false)), Value::tuple({key, each}));
  sort_keyed(keyed, bound.flag(2, false));
  return Value::list(values_of(std::move(keyed)));
}

Value filter_unique(const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Mapping seen;
  Values made;
  for (const Value& item : entries_of(value)) {
    const Value key = without_case(value_at(item, bound.get(1)), bound.flag(0, false));
    if (seen.find(key)) continue;
    seen.set(key, Value());
    made.push_back(item);
  }
  return iterator(std::move(made));
}

Value extreme(const Value& value, const Arguments& arguments, bool is_largest) {
  const Bound bound(is_largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : entries_of(value)) {
    Value key = without_case(value_at(item, bound.get(1)), bound.flag(0, false));
    if (!best || (is_largest ? less(best->first, key) : less(key, best->first))) best.emplace(std::move(key), item);
  }
  return best ? best->second : Value::undefined("No aggregated item, sequence was empty.");
}

Value filter_min(const Value& value, const Arguments& arguments) { return extreme(value, arguments, false); }
Value filter_max(const Value& value, const Arguments& arguments) { return extreme(value, arguments, true); }

Value filter_sum(const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Value made = bound.get(1, Value::integer(0));
  if (made.is_text()) throw RenderError("sum() can't sum strings");
  for (const Value& item : entries_of(value)) made = add(made, value_at(item, bound.get(0)));
  return made;
}

Value filter_groupby(const Value& value, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const Value fallback = bound.get(1);
  const Value* used = fallback.is_none() ? nullptr : &fallback;
  Keyed keyed;
  for (const Value& item : entries_of(value))
    keyed.emplace_back(without_case(value_at(item, bound.required(0), used), bound.flag(2, false)), item);
  sort_keyed(keyed, /*is_reverse=*/false);
  Values groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::size_t end = begin;
    Values items;
    for (; end < keyed.size() && equal(keyed[end].first, keyed[begin].first); ++end) items.push_back(keyed[end].second);
    const Value key = value_at(items[0], bound.required(0), used);
    groups.push_back(Value::group(key, Value::list(std::move(items))));
    begin = end;
  }
  return Value::list(std::move(groups));
}

Value filter_batch(const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"});
  const Integer size = bound.whole(0);
  Values rows, row;
  for (Value& item : entries_of(value)) {
    if (static_cast<Integer>(row.size()) == size) rows.push_back(Value::list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (row.empty()) return iterator(std::move(rows));
  if (!bound.get(1).is_none() && static_cast<Integer>(row.size()) < size) {
    require_list_size(static_cast<std::size_t>(std::min<Integer>(size, 1 << 30)), 1);
    row.resize(static_cast<std::size_t>(size), bound.get(1));
  }
  rows.push_back(Value::list(std::move(row)));
  return iterator(std::move(rows));
}

Value filter_slice(const Value& value, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"});
  const Integer stated = bound.whole(0);
  if (stated == 0) throw RenderError("integer division or modulo by zero");
  const auto slices = static_cast<std::size_t>(std::clamp<Integer>(stated, 0, 1 << 30));
  require_list_size(slices, 1);
  const Values items = entries_of(value);
  Values rows;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const bool has_extra = i < items.size() % slices;
    const std::size_t end = begin + items.size() / slices + (has_extra ? 1 : 0);
    Values row(items.begin() + static_cast<std::ptrdiff_t>(begin), items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!bound.get(1).is_none() && !has_extra) row.push_back(bound.get(1));
    rows.push_back(Value::list(std::move(row)));
    begin = end;
  }
  return iterator(std::move(rows));
}

}  // namespace

const NamedFilter kListFilters[] = {{"length", filter_length},
                                    {"count", filter_length},
                                    {"first", filter_first},
                                    {"last", filter_last},
                                    {"list", filter_list},
                                    {"items", filter_items},
                                    {"join", filter_join},
                                    {"reverse", filter_reverse},
                                    {"map", filter_map},
                                    {"select", filter_select},
                                    {"reject", filter_reject},
                                    {"selectattr", filter_selectattr},
                                    {"rejectattr", filter_rejectattr},
                                    {"sort", filter_sort},
                                    {"dictsort", filter_dictsort},
                                    {"unique", filter_unique},
                                    {"min", filter_min},
                                    {"max", filter_max},
                                    {"sum", filter_sum},
                                    {"groupby", filter_groupby},
                                    {"batch", filter_batch},
                                    {"slice", filter_slice},
                                    {nullptr, nullptr}};

}  // namespace gantry::jinja
