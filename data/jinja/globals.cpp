// Functions that every template has.
#include <fmt/format.h>

#include "gantry/data/jinja/arguments.h"
#include "gantry/data/jinja/interpreter.h"
#include "gantry/data/jinja/print.h"

namespace gantry::jinja {
namespace {

Value make_range(const Arguments& arguments) {
  const Bound bound("range()", arguments, {"start", "stop", "step"});
  const Integer step = bound.whole(2, 1);
  if (step == 0) throw RenderError("range() arg 3 must not be zero");
  const bool has_start = bound.has(1);
  return Value::object(std::make_shared<Range>(has_start ? bound.whole(0) : 0, bound.whole(has_start ? 1 : 0), step));
}

// dict(mapping or pairs, name=value).
Mapping mapping_of(const Arguments& arguments, const char* what) {
  if (arguments.values.size() > 1)
    throw RenderError(
        fmt::format("{} takes at most 1 positional argument; {} are given", what, arguments.values.size()));
  Mapping made;
  for (const Value& value : arguments.values) {
    if (value.is_mapping())
      for (const auto& [key, each] : value.entries().items()) made.set(key, each);
    else
      for (const Value& pair : entries_of(value)) {
        const Values both = entries_of(pair);
        if (both.size() != 2) throw RenderError(fmt::format("{}: an item is not a pair", what));
        made.set(both[0], both[1]);
      }
  }
  for (const auto& [name, value] : arguments.named) made.set(Value::text(name), value);
  return made;
}

// Gives its items in turn.
class Cycler : public Object {
 public:
  explicit Cycler(Values items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(const std::string& name) override {
    if (name == "current") return items_[at_];
    if (name == "reset") return function(name, [this](const Arguments&) { return at_ = 0, Value(); });
    if (name != "next") return {};
    return function(name, [this](const Arguments&) { return items_[std::exchange(at_, (at_ + 1) % items_.size())]; });
  }

 private:
  Values items_;
  std::size_t at_ = 0;
};

// Returns the empty text at the first call, and later the separator.
class Joiner : public Object {
 public:
  explicit Joiner(Value text) : text_(std::move(text)) {}
  std::string type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Value call(const Arguments&) override { return std::exchange(was_called_, true) ? text_ : Value::text(""); }

 private:
  Value text_;
  bool was_called_ = false;
};

Value make_cycler(const Arguments& arguments) {
  if (arguments.values.empty()) throw RenderError("at least one item has to be provided");
  return Value::object(std::make_shared<Cycler>(arguments.values));
}

Value make_joiner(const Arguments& arguments) {
  const Bound bound("joiner()", arguments, {"sep"});
  return Value::object(std::make_shared<Joiner>(bound.get(0, Value::text(", "))));
}

Value raise(const Arguments& arguments) {
  const Bound bound("raise_exception()", arguments, {"message"});
  throw RaisedError(str(bound.required(0)));
}

}  // namespace

void add_globals(Scope& scope, const std::function<std::string(const std::string&)>& format_time,
                 const std::function<void(std::shared_ptr<Namespace>)>& keep) {
  const auto add = [&](const char* name, Function::Body body) { scope.set(name, function(name, std::move(body))); };
  add("range", make_range);
  add("cycler", make_cycler);
  add("joiner", make_joiner);
  add("raise_exception", raise);
  add("dict", [](const Arguments& arguments) { return Value::mapping(mapping_of(arguments, "dict()")); });
  add("lipsum", [](const Arguments&) -> Value { throw RenderError("lipsum() is not supported in chat templates"); });
  add("strftime_now", [format_time](const Arguments& arguments) {
    return Value::text(format_time(Bound("strftime_now()", arguments, {"format"}).text(0)));
  });
  add("namespace", [keep](const Arguments& arguments) {
    auto made = std::make_shared<Namespace>();
    const Mapping values = mapping_of(arguments, "namespace()");
    for (const auto& [name, value] : values.items()) made->set(str(name), value);
    keep(made);
    return Value::object(made);
  });
}

}  // namespace gantry::jinja
