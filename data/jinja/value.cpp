#include "gantry/data/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/object.h"

namespace gantry::jinja {
namespace {

constexpr int kDeepestValue = 500;
constexpr std::size_t kFewEntries = 8;  // a mapping up to this size is searched without an index
constexpr std::size_t kBytesOfValue = 48;

int depth_of(const Values& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  if (deepest >= kDeepestValue) throw RenderError(fmt::format("values nested more than {} deep", kDeepestValue));
  return deepest + 1;
}

std::uint64_t mixed(std::uint64_t one, std::uint64_t other) {
  return (one ^ (other + 0x9E3779B97F4A7C15ULL + (one << 6) + (one >> 2))) * 0xBF58476D1CE4E5B9ULL;
}

bool equal_mappings(const Mapping& one, const Mapping& other) {
  return one.size() == other.size() && std::ranges::all_of(one.items(), [&](const auto& entry) {
           const Value* found = other.find(entry.first);
           return found && equal(entry.second, *found);
         });
}

bool equal_items(const Values& one, const Values& other) {
  return std::ranges::equal(one, other, [](const Value& a, const Value& b) { return a.same_as(b) || equal(a, b); });
}

bool less_items(const Values& one, const Values& other) {
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    if (!equal(one[i], other[i])) return less(one[i], other[i]);
  return one.size() < other.size();
}

}  // namespace

Value Value::undefined(std::string why) {
  return Value(Any(Undefined{std::make_shared<const std::string>(std::move(why))}));
}

Value Value::text(std::string bytes, bool is_safe) {
  spend_bytes(kBytesOfValue + bytes.size());
  return Value(Any(std::make_shared<const Text>(Text{std::move(bytes), is_safe})));
}

Value Value::list(Values items) {
  spend_bytes(kBytesOfValue * (1 + items.size()));
  const int depth = depth_of(items);
  return Value(Any(std::make_shared<const Sequence>(Sequence{std::move(items), /*is_tuple=*/false})), depth);
}

Value Value::tuple(Values items) {
  spend_bytes(kBytesOfValue * (1 + items.size()));
  const int depth = depth_of(items);
  return Value(Any(std::make_shared<const Sequence>(Sequence{std::move(items), /*is_tuple=*/true})), depth);
}

Value Value::group(Value key, Value items) {
  Values both;
  both.push_back(std::move(key));
  both.push_back(std::move(items));
  const int depth = depth_of(both);
  return Value(Any(std::make_shared<const Sequence>(Sequence{std::move(both), /*is_tuple=*/true, /*is_group=*/true})),
               depth);
}

Value Value::mapping(Mapping mapping) {
  spend_bytes(3 * kBytesOfValue * (1 + mapping.size()));
  int depth = 0;
  for (const auto& [key, value] : mapping.items()) depth = std::max({depth, key.depth(), value.depth()});
  if (depth >= kDeepestValue) throw RenderError(fmt::format("values nested more than {} deep", kDeepestValue));
  return Value(Any(std::make_shared<const Mapping>(std::move(mapping))), depth + 1);
}

int Value::depth() const {
  const auto* object = std::get_if<std::shared_ptr<Object>>(&any_);
  return object ? (*object)->depth() : depth_;
}

bool Value::truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_int()) return whole() != 0;
  if (is_real()) return number() != 0;
  if (is_text()) return !bytes().empty();
  const auto length = length_of(*this);
  return !length || *length > 0;
}

bool Value::same_as(const Value& other) const {
  if (any_.index() != other.any_.index()) return false;
  if (is_none()) return true;
  if (is_undefined()) return std::get<Undefined>(any_).why == std::get<Undefined>(other.any_).why;
  if (is_int()) return whole() == other.whole();
  if (is_real()) return number() == other.number();
  if (is_text()) return bytes() == other.bytes();  // Python interns most of a template's
  if (is_sequence()) return &sequence() == &other.sequence();
  if (is_mapping()) return &entries() == &other.entries();
  return std::get<std::shared_ptr<Object>>(any_) == std::get<std::shared_ptr<Object>>(other.any_);
}

std::string Value::type_name() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "Undefined";
  if (is_boolean()) return "bool";
  if (is_integer()) return "int";
  if (is_real()) return "float";
  if (is_text()) return is_safe() ? "Markup" : "str";
  if (is_sequence()) return sequence().is_tuple ? "tuple" : "list";
  if (is_mapping()) return "dict";
  return std::get<std::shared_ptr<Object>>(any_)->type_name();
}

// --- Mapping ---

std::size_t Mapping::place_of(const Value& key) const {
  const std::uint64_t hash = hash_of(key);
  if (buckets_.empty()) {
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (hashes_[i] == hash && equal(items_[i].first, key)) return i;
    return items_.size();
  }
  const std::size_t mask = buckets_.size() - 1;
  for (std::size_t at = hash & mask; buckets_[at] != 0; at = (at + 1) & mask) {
    spend_steps(1);
    const std::size_t place = buckets_[at] - 1;
    if (hashes_[place] == hash && equal(items_[place].first, key)) return place;
  }
  return items_.size();
}

void Mapping::set(const Value& key, Value value) {
  const std::size_t place = place_of(key);
  if (place < items_.size()) {
    items_[place].second = std::move(value);
    return;
  }
  items_.emplace_back(key, std::move(value));
  hashes_.push_back(hash_of(key));
  if (items_.size() <= kFewEntries) return;
  const bool grows = 2 * items_.size() > buckets_.size();
  if (grows) buckets_.assign(std::max<std::size_t>(32, 2 * buckets_.size()), 0);
  const std::size_t mask = buckets_.size() - 1;
  for (std::size_t i = grows ? 0 : items_.size() - 1; i < items_.size(); ++i) {
    std::size_t at = hashes_[i] & mask;
    while (buckets_[at] != 0) at = (at + 1) & mask;
    buckets_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

const Value* Mapping::find(const Value& key) const {
  const std::size_t place = place_of(key);
  return place < items_.size() ? &items_[place].second : nullptr;
}

const Value* Mapping::find(const std::string& key) const {
  if (buckets_.empty()) {
    for (const auto& [each, value] : items_)
      if (each.is_text() && each.bytes() == key) return &value;
    return nullptr;
  }
  return find(Value::text(key));
}

// --- Comparisons ---

bool equal(const Value& one, const Value& other) {
  const Nesting nesting;
  spend_steps(1);
  if (one.is_number() && other.is_number()) {
    if (one.is_int() && other.is_int()) return one.whole() == other.whole();
    return one.number() == other.number();
  }
  if (one.is_text() && other.is_text()) return one.bytes() == other.bytes();
  if (one.is_undefined() && other.is_undefined()) return true;
  if (one.is_sequence() && other.is_sequence())
    return one.sequence().is_tuple == other.sequence().is_tuple && equal_items(one.items(), other.items());
  if (one.is_mapping() && other.is_mapping()) return equal_mappings(one.entries(), other.entries());
  const auto *range = one.as<Range>(), *second = other.as<Range>();
  if (range && second) return equal_items(entries_of(one), entries_of(other));
  return one.same_as(other);
}

bool less(const Value& one, const Value& other) {
  const Nesting nesting;
  spend_steps(1);
  if (one.is_undefined() || other.is_undefined()) throw RenderError((one.is_undefined() ? one : other).why());
  if (one.is_number() && other.is_number()) {
    if (one.is_int() && other.is_int()) return one.whole() < other.whole();
    return one.number() < other.number();
  }
  if (one.is_text() && other.is_text()) return one.bytes() < other.bytes();
  if (one.is_sequence() && other.is_sequence() && one.sequence().is_tuple == other.sequence().is_tuple)
    return less_items(one.items(), other.items());
  throw RenderError(
      fmt::format("'<' not supported between instances of '{}' and '{}'", one.type_name(), other.type_name()));
}

bool contains(const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text())
      throw RenderError(fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    spend_steps(container.bytes().size() / 64);
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.is_mapping()) return container.entries().find(item) != nullptr;
  if (const auto* names = container.as<Namespace>(); names || !is_iterable(container))
    throw RenderError(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  if (container.is_sequence())
    return std::ranges::any_of(container.items(),
                               [&](const Value& each) { return each.same_as(item) || equal(each, item); });
  return std::ranges::any_of(entries_of(container), [&](const Value& each) { return equal(each, item); });
}

std::uint64_t hash_of(const Value& value) {
  const Nesting nesting;
  if (value.is_text()) return std::hash<std::string>()(value.bytes());
  if (value.is_int()) return mixed(1, static_cast<std::uint64_t>(value.whole()));
  if (value.is_real()) {
    const double number = value.number();
    const bool is_int = std::nearbyint(number) == number && std::abs(number) < 9e18;
    return is_int ? mixed(1, static_cast<std::uint64_t>(static_cast<std::int64_t>(number)))
                  : mixed(2, std::hash<double>()(number));
  }
  if (value.is_tuple()) {
    std::uint64_t hash = 3;
    for (const Value& item : value.items()) hash = mixed(hash, hash_of(item));
    return hash;
  }
  if (value.is_sequence() || value.is_mapping())
    throw RenderError(fmt::format("unhashable type: '{}'", value.type_name()));
  return 4;  // one hash for all other values, which are rarely keys
}

}  // namespace gantry::jinja
