#include "gantry/data/jinja/loop.h"

#include <fmt/format.h>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/meter.h"

namespace gantry::jinja {
namespace {

Source source_of_items(std::shared_ptr<const Values> items) {
  const std::size_t size = items->size();
  auto next = [items = std::move(items), at = std::size_t{0}]() mutable -> std::optional<Value> {
    return at < items->size() ? std::optional((*items)[at++]) : std::nullopt;
  };
  return {std::move(next), size};
}

}  // namespace

Source source_of(const Value& value) {
  if (value.as<Iterator>()) return {[value] { return value.as<Iterator>()->next(); }, std::nullopt};
  if (value.as<Range>()) {
    const std::size_t size = *length_of(value);
    return {[value, size, at = std::size_t{0}]() mutable {
              return at < size ? std::optional(value.as<Range>()->at(at++)) : std::nullopt;
            },
            size};
  }
  return source_of_items(std::make_shared<const Values>(entries_of(value)));
}

Loop::Loop(Source source, int depth, std::function<Value(const Value&)> recurse)
    : source_(std::move(source)), depth_(depth), recurse_(std::move(recurse)) {}

std::optional<Value> Loop::next() {
  std::optional<Value> item = has_peeked_ ? std::move(after_) : source_.next();
  has_peeked_ = false;
  after_.reset();
  if (!item) return {};
  ++index_;
  before_ = std::exchange(current_, item);
  return item;
}

const std::optional<Value>& Loop::peek() {
  if (!has_peeked_) after_ = source_.next(), has_peeked_ = true;
  return after_;
}

// Without a length the rest is taken now.
std::size_t Loop::size() {
  if (source_.length) return *source_.length;
  auto rest = std::make_shared<Values>();
  while (auto item = source_.next()) rest->push_back(std::move(*item));
  source_ = source_of_items(rest);
  source_.length = rest->size() + static_cast<std::size_t>(index_ + 1) + (has_peeked_ && after_ ? 1 : 0);
  return *source_.length;
}

std::optional<Value> Loop::attribute(const std::string& name) {
  const auto size_now = [this] { return static_cast<Integer>(size()); };
  if (name == "index") return Value::integer(index_ + 1);
  if (name == "index0") return Value::integer(index_);
  if (name == "length") return Value::integer(size_now());
  if (name == "revindex") return Value::integer(size_now() - index_);
  if (name == "revindex0") return Value::integer(size_now() - index_ - 1);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") return index_ > 0 ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *peek() : Value::undefined("there is no next item");
  if (name == "cycle") return function(name, [this](const Arguments& arguments) { return cycled(arguments); });
  if (name == "changed")
    return function(name, [this](const Arguments& arguments) { return Value::boolean(has_changed(arguments)); });
  return {};
}

std::optional<std::string> Loop::repr() {
  return fmt::format("<LoopContext {}/{}>", static_cast<std::int64_t>(index_ + 1), size());
}

Value Loop::cycled(const Arguments& arguments) const {
  if (arguments.values.empty()) throw RenderError("no items for cycling given");
  return arguments.values[static_cast<std::size_t>(index_) % arguments.values.size()];
}

bool Loop::has_changed(const Arguments& arguments) {
  Value now = Value::tuple(arguments.values);
  if (last_changed_ && equal(*last_changed_, now)) return false;
  last_changed_ = std::move(now);
  return true;
}

Value Loop::call(const Arguments& arguments) {
  if (!recurse_) throw RenderError("the loop must have the 'recursive' marker to be called recursively");
  const Bound bound("loop()", arguments, {"iterable"});
  return recurse_(bound.required(0));
}

}  // namespace gantry::jinja
