// Expressions.
#include <fmt/format.h>

#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/filters.h"
#include "gantry/data/jinja/interpreter.h"
#include "gantry/data/jinja/methods.h"
#include "gantry/data/jinja/print.h"

namespace gantry::jinja {
namespace {

using NodeKind = Expression::Kind;

Value operated(const std::string& sign, const Value& one, const Value& other) {
  if (sign == "+") return add(one, other);
  if (sign == "-") return subtract(one, other);
  if (sign == "*") return multiply(one, other);
  if (sign == "/") return divide(one, other);
  if (sign == "//") return floor_divide(one, other);
  if (sign == "%") return modulo(one, other);
  return power(one, other);
}

bool compared(const std::string& sign, const Value& one, const Value& other) {
  if (sign == "==") return equal(one, other);
  if (sign == "!=") return !equal(one, other);
  if (sign == "in") return contains(other, one);
  if (sign == "not in") return !contains(other, one);
  if (sign == "<") return less(one, other);
  if (sign == ">") return less(other, one);
  return sign == "<=" ? !less(other, one) : !less(one, other);
}

Object& callable(const Value& value) {
  if (value.is_undefined()) throw RenderError(value.why());
  auto* object = value.as<Object>();
  if (!object) throw RenderError(fmt::format("'{}' object is not callable", value.type_name()));
  return *object;
}

void spread_named(const Value& value, Arguments& made) {
  if (!value.is_mapping())
    throw RenderError(fmt::format("argument after ** must be a mapping, not {}", value.type_name()));
  for (const auto& [key, each] : value.entries().items()) {
    if (!key.is_text()) throw RenderError("keywords must be strings");
    made.named.emplace_back(key.bytes(), each);
  }
}

}  // namespace

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
    for (const auto& [each, value] : scope->names)
      if (each == name) return &value;
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [each, held] : names)
    if (each == name) {
      held = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

Value Interpreter::evaluate(const Expression& expression, const ScopePtr& scope) {
  place_ = expression.place;
  spend_steps(1);
  if (expression.kind == NodeKind::kConstant) return expression.value;
  if (expression.kind == NodeKind::kName) {
    const Value* found = scope->find(expression.name);
    return found ? *found : Value::undefined(fmt::format("'{}' is undefined", expression.name));
  }
  const Nesting nesting;
  return evaluate_node(expression, scope);
}

Value Interpreter::evaluate_node(const Expression& expression, const ScopePtr& scope) {
  const auto& parts = expression.parts;
  switch (expression.kind) {
    case NodeKind::kList:
      return Value::list(evaluate_all(parts, scope));
    case NodeKind::kTuple:
      return Value::tuple(evaluate_all(parts, scope));
    case NodeKind::kMapping:
      return mapping(expression, scope);
    case NodeKind::kCall:
      return called(expression, scope, {});
    case NodeKind::kFilter:
      return filtered(expression, scope, {});
    case NodeKind::kOperation:
      return operation(expression, scope);
    case NodeKind::kComparison:
      return comparison(expression, scope);
    case NodeKind::kNot:
      return Value::boolean(!evaluate(parts[0], scope).truth());
    case NodeKind::kAttribute: {
      const Value value = evaluate(parts[0], scope);
      place_ = expression.place;
      return attribute_of(value, expression.name);
    }
    case NodeKind::kItem: {
      const Value value = evaluate(parts[0], scope), key = evaluate(parts[1], scope);
      place_ = expression.place;
      return item_of(value, key);
    }
    case NodeKind::kSlice: {
      const Values all = evaluate_all(parts, scope);
      place_ = expression.place;
      return slice_of(all[0], all[1], all[2], all[3]);
    }
    case NodeKind::kTest: {
      const Value value = evaluate(parts[0], scope);
      const Arguments passed = arguments(expression.arguments, scope);
      place_ = expression.place;
      return Value::boolean(apply_test(expression.name, value, passed));
    }
    case NodeKind::kNegative:
    case NodeKind::kPositive: {
      const Value value = evaluate(parts[0], scope);
      place_ = expression.place;
      return expression.kind == NodeKind::kNegative ? negated(value) : positive(value);
    }
    case NodeKind::kAnd:
    case NodeKind::kOr: {
      const Value first = evaluate(parts[0], scope);
      return first.truth() == (expression.kind == NodeKind::kOr) ? first : evaluate(parts[1], scope);
    }
    case NodeKind::kConditional:
      if (evaluate(parts[0], scope).truth()) return evaluate(parts[1], scope);
      if (parts.size() == 3) return evaluate(parts[2], scope);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
    default: {  // kConcatenation
      std::string text;
      for (const Value& value : evaluate_all(parts, scope)) {
        text += str(value);
        require_text_size(1, text.size());
      }
      return Value::text(std::move(text));
    }
  }
}

Values Interpreter::evaluate_all(const std::vector<Expression>& parts, const ScopePtr& scope) {
  Values values;
  values.reserve(parts.size());
  for (const Expression& part : parts) values.push_back(evaluate(part, scope));
  return values;
}

Value Interpreter::operation(const Expression& expression, const ScopePtr& scope) {
  const Value one = evaluate(expression.parts[0], scope), other = evaluate(expression.parts[1], scope);
  place_ = expression.place;
  return operated(expression.name, one, other);
}

// a < b < c evaluates b once and compares it twice. It ends at the first comparison that does not hold.
Value Interpreter::comparison(const Expression& expression, const ScopePtr& scope) {
  Value one = evaluate(expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value other = evaluate(expression.parts[i + 1], scope);
    place_ = expression.place;
    if (!compared(expression.operators[i], one, other)) return Value::boolean(false);
    one = std::move(other);
  }
  return Value::boolean(true);
}

Value Interpreter::mapping(const Expression& expression, const ScopePtr& scope) {
  Mapping made;
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(expression.parts[i], scope);
    made.set(key, evaluate(expression.parts[i + 1], scope));
  }
  return Value::mapping(std::move(made));
}

Arguments Interpreter::arguments(const std::vector<Argument>& stated, const ScopePtr& scope) {
  Arguments made;
  for (const Argument& argument : stated) {
    Value value = evaluate(argument.value, scope);
    switch (argument.kind) {
      case Argument::Kind::kPlain:
        made.values.push_back(std::move(value));
        break;
      case Argument::Kind::kNamed:
        made.named.emplace_back(argument.name, std::move(value));
        break;
      case Argument::Kind::kSpreadNamed:
        spread_named(value, made);
        break;
      case Argument::Kind::kSpread:
        for (Value& each : entries_of(value)) made.values.push_back(std::move(each));
    }
  }
  return made;
}

Value Interpreter::called(const Expression& expression, const ScopePtr& scope, const std::optional<Value>& caller) {
  const Expression& of = expression.parts[0];
  const auto passed = [&] {
    Arguments made = arguments(expression.arguments, scope);
    if (caller) made.named.emplace_back("caller", *caller);
    place_ = expression.place;
    return made;
  };
  if (of.kind == NodeKind::kAttribute) {  // a method needs no value of its own
    const Value receiver = evaluate(of.parts[0], scope);
    place_ = of.place;
    if (has_method(receiver, of.name)) return call_method(receiver, of.name, passed());
    const Value callee = attribute_of(receiver, of.name);
    return callable(callee).call(passed());
  }
  const Value callee = evaluate(of, scope);
  return callable(callee).call(passed());
}

Value Interpreter::filtered(const Expression& expression, const ScopePtr& scope, const std::optional<Value>& block) {
  // Without parts, the filter is the innermost of a block's.
  const Value value = expression.parts.empty()                        ? *block
                      : expression.parts[0].kind == NodeKind::kFilter ? filtered(expression.parts[0], scope, block)
                                                                      : evaluate(expression.parts[0], scope);
  const Arguments passed = arguments(expression.arguments, scope);
  place_ = expression.place;
  return apply_filter(expression.name, value, passed);
}

}  // namespace gantry::jinja
