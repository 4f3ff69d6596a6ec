// The variable `loop` within a loop's body.
#pragma once

#include <functional>
#include <optional>

#include "gantry/data/jinja/object.h"

namespace gantry::jinja {

// The items of a loop, one by one, and their number if it is known before the end.
struct Source {
  std::function<std::optional<Value>()> next;
  std::optional<std::size_t> length;
};
// The entries of a value one by one, as Python's iter(). Throws RenderError for a value without entries.
Source source_of(const Value& value);

class Loop : public Object {
 public:
  // `recurse` runs the loop again over another value; empty for a loop that is not recursive.
  Loop(Source source, int depth, std::function<Value(const Value&)> recurse);

  std::optional<Value> next();  // the item of the next round

  std::string type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(const std::string& name) override;
  std::optional<std::size_t> length() override { return size(); }
  std::optional<std::string> repr() override;
  bool is_callable() const override { return true; }
  Value call(const Arguments& arguments) override;

 private:
  const std::optional<Value>& peek();
  std::size_t size();
  Value cycled(const Arguments& arguments) const;
  bool has_changed(const Arguments& arguments);

  Source source_;
  int depth_ = 0;
  std::function<Value(const Value&)> recurse_;
  Integer index_ = -1;
  std::optional<Value> before_, current_, after_;
  bool has_peeked_ = false;
  std::optional<Value> last_changed_;
};

}  // namespace gantry::jinja
