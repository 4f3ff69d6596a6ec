// Values of a template. They behave as Python's do, and none changes once it is made, except for objects with a state
// of their own (see object.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gantry::jinja {

class Value;
class Mapping;
class Object;
using Integer = __int128;  // Python's integers have no bound; an operation with a larger result is an error
using Values = std::vector<Value>;

// A str, and jinja2's Markup where it is safe.
struct Text {
  std::string bytes;
  bool is_safe = false;
};

// A list or a tuple.
struct Sequence {
  Values items;
  bool is_tuple = false;
  bool is_group = false;  // made by the filter groupby: the two items are named grouper and list
};

class Value {
 public:
  Value() = default;  // None

  static Value undefined(std::string why);
  static Value boolean(bool value) { return Value(Any(value)); }
  static Value integer(Integer value) { return Value(Any(value)); }
  static Value real(double value) { return Value(Any(value)); }
  static Value text(std::string bytes, bool is_safe = false);
  static Value list(Values items);
  static Value tuple(Values items);
  static Value group(Value key, Value items);
  static Value mapping(Mapping mapping);
  static Value object(std::shared_ptr<Object> object) { return Value(Any(std::move(object))); }

  bool is_none() const { return std::holds_alternative<std::monostate>(any_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(any_); }
  bool is_boolean() const { return std::holds_alternative<bool>(any_); }
  bool is_integer() const { return std::holds_alternative<Integer>(any_); }  // no bool, which Python counts
  bool is_real() const { return std::holds_alternative<double>(any_); }
  bool is_text() const { return std::holds_alternative<std::shared_ptr<const Text>>(any_); }
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(any_); }
  bool is_mapping() const { return std::holds_alternative<std::shared_ptr<const Mapping>>(any_); }
  bool is_list() const { return is_sequence() && !sequence().is_tuple; }
  bool is_tuple() const { return is_sequence() && sequence().is_tuple; }
  bool is_int() const { return is_boolean() || is_integer(); }  // an int for Python
  bool is_number() const { return is_int() || is_real(); }

  // Each requires a value of its kind.
  const std::string& why() const { return *std::get<Undefined>(any_).why; }
  const std::string& bytes() const { return std::get<std::shared_ptr<const Text>>(any_)->bytes; }
  bool is_safe() const { return is_text() && std::get<std::shared_ptr<const Text>>(any_)->is_safe; }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(any_); }
  const Values& items() const { return sequence().items; }
  const Mapping& entries() const { return *std::get<std::shared_ptr<const Mapping>>(any_); }
  Integer whole() const { return is_boolean() ? Integer(std::get<bool>(any_)) : std::get<Integer>(any_); }
  double number() const { return is_real() ? std::get<double>(any_) : static_cast<double>(whole()); }

  // The object if it is of that type, else null.
  template <class Type>
  Type* as() const {
    const auto* object = std::get_if<std::shared_ptr<Object>>(&any_);
    return object ? dynamic_cast<Type*>(object->get()) : nullptr;
  }

  bool truth() const;
  bool same_as(const Value& other) const;  // `is`: of one place in memory, or one constant
  std::string type_name() const;           // Python's: str, dict, NoneType
  int depth() const;                       // 0 without parts

 private:
  struct Undefined {
    std::shared_ptr<const std::string> why;
  };
  using Any = std::variant<std::monostate, Undefined, bool, Integer, double, std::shared_ptr<const Text>,
                           std::shared_ptr<const Sequence>, std::shared_ptr<const Mapping>, std::shared_ptr<Object>>;
  explicit Value(Any any, int depth = 0) : any_(std::move(any)), depth_(depth) {}

  Any any_;
  int depth_ = 0;
};

// A dict: entries in the order in which they were set first.
class Mapping {
 public:
  // Throws RenderError for a key that Python can't hash.
  void set(const Value& key, Value value);
  const Value* find(const Value& key) const;  // null: none. Throws as set().
  const Value* find(const std::string& key) const;
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }

 private:
  std::size_t place_of(const Value& key) const;  // size() if there is none

  std::vector<std::pair<Value, Value>> items_;
  std::vector<std::uint64_t> hashes_;   // one for each key
  std::vector<std::uint32_t> buckets_;  // above a few entries: open addressing, place + 1
};

bool equal(const Value& one, const Value& other);
// `one` < `other`, as sorting and comparing do. Throws RenderError where Python has no order.
bool less(const Value& one, const Value& other);
bool contains(const Value& container, const Value& item);
// Equal values have equal hashes. Throws RenderError for list and dict.
std::uint64_t hash_of(const Value& value);

}  // namespace gantry::jinja
