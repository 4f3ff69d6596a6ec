// Runs the tree of a template.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/object.h"
#include "gantry/data/jinja/syntax.h"

namespace gantry::jinja {

// Names that were set in one part of a template: within a loop's body, a macro, a block.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> names;

  const Value* find(const std::string& name) const;  // also in those around it
  void set(const std::string& name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

// Where a text that a template writes begins and ends.
using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

class Interpreter {
 public:
  // `globals`: functions and variables. `limits`: those of the thread's Meter, which outlives the interpreter.
  Interpreter(const ScopePtr& globals, const Limits& limits);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws RenderError, whose place is place() then.
  std::string run(const std::vector<Statement>& statements);
  const Ranges& generated() const { return generated_; }  // by {% generation %}, outside macros and blocks of set
  Place place() const { return place_; }

  // The text of a macro's call, and of a recursive loop's.
  std::string call_body(const Statement& statement, const ScopePtr& scope);
  std::string loop_over(const Statement& loop, const Value& value, const ScopePtr& around, int depth);
  Value evaluate(const Expression& expression, const ScopePtr& scope);
  void keep(std::shared_ptr<Namespace> made) { namespaces_.push_back(std::move(made)); }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // --- statements.cpp ---
  Flow execute(const std::vector<Statement>& statements, const ScopePtr& scope, std::string& out);
  Flow execute_one(const Statement& statement, const ScopePtr& scope, std::string& out);
  void write(const std::string& text, std::string& out) const;
  void run_loop(const Statement& loop, const Value& value, const ScopePtr& around, int depth, std::string& out);
  void run_with(const Statement& statement, const ScopePtr& scope, std::string& out);
  void run_call_block(const Statement& statement, const ScopePtr& scope, std::string& out);
  void run_generation(const Statement& statement, const ScopePtr& scope, std::string& out);
  std::string captured(const std::vector<Statement>& body, const ScopePtr& around);
  void assign(const Expression& target, const Value& value, const ScopePtr& scope, const ScopePtr& names);
  Value macro(const Statement& statement, const ScopePtr& scope);

  // --- evaluation.cpp ---
  Value evaluate_node(const Expression& expression, const ScopePtr& scope);
  Value operation(const Expression& expression, const ScopePtr& scope);
  Value comparison(const Expression& expression, const ScopePtr& scope);
  Value mapping(const Expression& expression, const ScopePtr& scope);
  Values evaluate_all(const std::vector<Expression>& parts, const ScopePtr& scope);
  Value called(const Expression& expression, const ScopePtr& scope, const std::optional<Value>& caller);
  Value filtered(const Expression& expression, const ScopePtr& scope, const std::optional<Value>& block);
  Arguments arguments(const std::vector<Argument>& stated, const ScopePtr& scope);

  ScopePtr top_;  // belongs to the template itself
  const Limits& limits_;
  Place place_;
  std::string* output_ = nullptr;  // belongs to the template itself
  Ranges generated_;
  std::vector<ScopePtr> captured_;  // by macros, which have plain pointers to them: a scope may hold its macro
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// range, dict, namespace, cycler, joiner, raise_exception, and strftime_now by `format_time`.
void add_globals(Scope& scope, const std::function<std::string(const std::string&)>& format_time,
                 const std::function<void(std::shared_ptr<Namespace>)>& keep);

}  // namespace gantry::jinja
