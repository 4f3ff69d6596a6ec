// Values with a type of their own: callables, iterators, namespaces, loops.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/jinja/value.h"

namespace gantry::jinja {

// The arguments of a call.
struct Arguments {
  Values values;
  std::vector<std::pair<std::string, Value>> named;
};

class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::optional<Value> attribute(const std::string& /*name*/) { return {}; }
  virtual std::optional<std::string> repr() { return {}; }  // nothing: Python prints an address
  virtual std::optional<std::size_t> length() { return {}; }
  virtual bool is_callable() const { return false; }
  virtual Value call(const Arguments& arguments);  // throws RenderError unless it is callable
  virtual int depth() const { return 0; }
};

// Entries that can be read once, like those of a generator.
class Iterator : public Object {
 public:
  explicit Iterator(Values items);
  std::string type_name() const override { return "generator"; }
  int depth() const override { return depth_; }
  std::optional<Value> next();

 private:
  Values items_;
  std::size_t next_ = 0;
  int depth_ = 0;
};

class Range : public Object {
 public:
  // `step` is not 0. Throws RenderError above the 100,000 numbers of jinja2's sandbox.
  Range(Integer start, Integer stop, Integer step);
  std::string type_name() const override { return "range"; }
  std::optional<Value> attribute(const std::string& name) override;
  std::optional<std::string> repr() override;
  std::optional<std::size_t> length() override { return size_; }
  Value at(std::size_t index) const;
  Integer start, stop, step;

 private:
  std::size_t size_ = 0;
};

// dict.keys(), values() or items().
class View : public Object {
 public:
  View(std::string type, Values items);
  std::string type_name() const override { return type_; }
  std::optional<std::string> repr() override;
  std::optional<std::size_t> length() override { return items_.size(); }
  int depth() const override { return depth_; }
  const Values& items() const { return items_; }

 private:
  std::string type_;
  Values items_;
  int depth_ = 0;
};

class Namespace : public Object {
 public:
  std::string type_name() const override { return "TemplateNamespace"; }
  std::optional<Value> attribute(const std::string& name) override;
  std::optional<std::string> repr() override;
  // Throws RenderError for a name with an underscore in front.
  void set(const std::string& name, Value value);
  void clear() { values_.clear(); }  // at the end of a rendering: a namespace may contain itself

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

class Function : public Object {
 public:
  using Body = std::function<Value(const Arguments&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Value call(const Arguments& arguments) override { return body_(arguments); }

 private:
  std::string name_;
  Body body_;
};

Value function(std::string name, Function::Body body);

// All entries of an iterable value; an iterator is exhausted then. Throws RenderError for other values.
Values entries_of(const Value& value);
bool is_iterable(const Value& value);
// len(); nothing if Python has none.
std::optional<std::size_t> length_of(const Value& value);

// getattr() and [] of jinja2's immutable sandbox; an undefined value if there is none.
Value attribute_of(const Value& value, const std::string& name);
Value item_of(const Value& value, const Value& key);
// value[start:stop:step]; None where a bound is left out.
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step);
// A method or another attribute of Python's own types; nothing if there is none. methods.cpp
std::optional<Value> own_attribute(const Value& value, const std::string& name);

}  // namespace gantry::jinja
