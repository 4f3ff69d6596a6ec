// A macro, and the body of a call block as its caller().
#pragma once

#include <memory>
#include <string>

#include "gantry/data/jinja/interpreter.h"

namespace gantry::jinja {

// The interpreter keeps `scope` until the end of the rendering.
class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Statement& statement, std::weak_ptr<Scope> scope)
      : interpreter_(interpreter), statement_(statement), scope_(std::move(scope)) {}

  std::string type_name() const override { return "Macro"; }
  std::optional<std::string> repr() override;
  std::optional<Value> attribute(const std::string& name) override;
  bool is_callable() const override { return true; }
  Value call(const Arguments& arguments) override;

 private:
  // Sets the parameters in `scope`, and takes the named arguments that are parameters out of `named`.
  void bind(const Arguments& arguments, Scope& scope, std::vector<std::pair<std::string, Value>>& named) const;
  void bind_rest(const Arguments& arguments, Scope& scope, std::vector<std::pair<std::string, Value>>& named) const;

  Interpreter& interpreter_;
  const Statement& statement_;
  std::weak_ptr<Scope> scope_;
};

}  // namespace gantry::jinja
