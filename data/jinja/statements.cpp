// Statements.
#include <fmt/format.h>

#include "gantry/data/jinja/interpreter.h"
#include "gantry/data/jinja/loop.h"
#include "gantry/data/jinja/macro.h"
#include "gantry/data/jinja/print.h"

namespace gantry::jinja {
namespace {

using StatementKind = Statement::Kind;

ScopePtr scope_within(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

Interpreter::Interpreter(const ScopePtr& globals, const Limits& limits)
    : top_(scope_within(globals)), limits_(limits) {}

Interpreter::~Interpreter() {
  for (const auto& scope : captured_) scope->names.clear();
  for (const auto& each : namespaces_) each->clear();
}

std::string Interpreter::run(const std::vector<Statement>& statements) {
  std::string out;
  output_ = &out;
  execute(statements, top_, out);
  return out;
}

std::string Interpreter::call_body(const Statement& statement, const ScopePtr& scope) {
  std::string out;
  execute(statement.body, scope, out);
  return out;
}

std::string Interpreter::captured(const std::vector<Statement>& body, const ScopePtr& around) {
  std::string out;
  execute(body, scope_within(around), out);
  return out;
}

void Interpreter::write(const std::string& text, std::string& out) const {
  if (out.size() + text.size() > limits_.output)
    throw RenderError(fmt::format("the template writes more than {} bytes", limits_.output));
  spend_bytes(text.size());
  out += text;
}

Interpreter::Flow Interpreter::execute(const std::vector<Statement>& statements, const ScopePtr& scope,
                                       std::string& out) {
  const Nesting nesting;
  for (const Statement& statement : statements)
    if (const Flow flow = execute_one(statement, scope, out); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_one(const Statement& statement, const ScopePtr& scope, std::string& out) {
  place_ = statement.place;
  spend_steps(1);
  switch (statement.kind) {
    case StatementKind::kText:
      write(statement.text, out);
      break;
    case StatementKind::kOutput:
      for (const Expression& expression : statement.expressions) write(str(evaluate(expression, scope)), out);
      break;
    case StatementKind::kIf:
      return execute(evaluate(statement.expressions[0], scope).truth() ? statement.body : statement.otherwise, scope,
                     out);
    case StatementKind::kFor:
      run_loop(statement, evaluate(statement.expressions[0], scope), scope, 0, out);
      break;
    case StatementKind::kSet:
      assign(statement.target, evaluate(statement.expressions[0], scope), scope, scope);
      break;
    case StatementKind::kSetBlock: {
      Value text = Value::text(captured(statement.body, scope));
      assign(statement.target, statement.expressions.empty() ? text : filtered(statement.expressions[0], scope, text),
             scope, scope);
      break;
    }
    case StatementKind::kFilterBlock:
      write(str(filtered(statement.expressions[0], scope, Value::text(captured(statement.body, scope)))), out);
      break;
    case StatementKind::kMacro:
      scope->set(statement.text, macro(statement, scope));
      break;
    case StatementKind::kCallBlock:
      run_call_block(statement, scope, out);
      break;
    case StatementKind::kWith:
      run_with(statement, scope, out);
      break;
    case StatementKind::kBlock:
      execute(statement.body, scope_within(statement.is_scoped ? scope : top_), out);
      break;
    case StatementKind::kGeneration:
      run_generation(statement, scope, out);
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

// `scope`: for the evaluation of the target's parts. `names`: the scope in which the names are set.
void Interpreter::assign(const Expression& target, const Value& value, const ScopePtr& scope, const ScopePtr& names) {
  spend_bytes(64);
  if (target.kind == Expression::Kind::kName) return names->set(target.name, value);
  place_ = target.place;
  if (target.kind == Expression::Kind::kAttribute) {
    const Value holder = evaluate(target.parts[0], scope);
    auto* space = holder.as<Namespace>();
    if (!space)
      throw RenderError(fmt::format("'{}' is not a namespace, so its attribute '{}' cannot be set",
                                    target.parts[0].name, target.name));
    return space->set(target.name, value);
  }
  const Values values = entries_of(value);
  if (values.size() != target.parts.size())
    throw RenderError(fmt::format("{} values for {} names", values.size(), target.parts.size()));
  for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i], scope, names);
}

Value Interpreter::macro(const Statement& statement, const ScopePtr& scope) {
  spend_bytes(128);
  if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
  return Value::object(std::make_shared<Macro>(*this, statement, scope));
}

void Interpreter::run_call_block(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const Value caller = macro(statement, scope);
  write(str(called(statement.expressions[0], scope, caller)), out);
}

// The body has a separate scope, like the body of a macro.
void Interpreter::run_generation(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const std::string text = captured(statement.body, scope);
  if (&out == output_) generated_.emplace_back(out.size(), out.size() + text.size());
  write(text, out);
}

// The values are evaluated in the outer scope.
void Interpreter::run_with(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const ScopePtr inner = scope_within(scope);
  for (std::size_t i = 0; i < statement.targets.size(); ++i)
    assign(statement.targets[i], evaluate(statement.expressions[i], scope), scope, inner);
  execute(statement.body, inner, out);
}

std::string Interpreter::loop_over(const Statement& loop, const Value& value, const ScopePtr& around, int depth) {
  const Nesting nesting;
  std::string out;
  run_loop(loop, value, around, depth, out);
  return out;
}

void Interpreter::run_loop(const Statement& loop, const Value& value, const ScopePtr& around, int depth,
                           std::string& out) {
  Source source = source_of(value);
  if (loop.expressions.size() > 1)  // items are tested as the loop comes to them
    source = {[this, &loop, around, next = std::move(source.next)]() -> std::optional<Value> {
                while (auto item = next()) {
                  const ScopePtr scope = scope_within(around);
                  assign(loop.target, *item, scope, scope);
                  if (evaluate(loop.expressions[1], scope).truth()) return item;
                }
                return {};
              },
              std::nullopt};
  std::function<Value(const Value&)> recurse;
  if (loop.is_recursive)
    recurse = [this, &loop, around, depth](const Value& inner) {
      return Value::text(loop_over(loop, inner, around, depth + 1));
    };
  const auto state = std::make_shared<Loop>(std::move(source), depth, std::move(recurse));
  bool has_run = false;
  while (auto item = state->next()) {
    has_run = true;
    const ScopePtr scope = scope_within(around);
    scope->set("loop", Value::object(state));
    assign(loop.target, *item, scope, scope);
    if (execute(loop.body, scope, out) == Flow::kBreak) break;
  }
  if (!has_run) execute(loop.otherwise, scope_within(around), out);
}

}  // namespace gantry::jinja
