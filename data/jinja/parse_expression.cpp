#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/parser.h"
#include "gantry/data/jinja/syntax_nodes.h"

namespace gantry::jinja {
namespace {

using NodeKind = Expression::Kind;

}  // namespace

// --- Targets ---

void Parser::require_target(const Expression& made) const {
  if (made.kind == NodeKind::kTuple) {
    for (const Expression& part : made.parts) require_target(part);
    return;
  }
  if (made.kind != NodeKind::kName && made.kind != NodeKind::kAttribute)
    throw SyntaxError(made.place, "cannot assign to this expression");
}

Expression Parser::target(bool with_attributes, std::string_view end) {
  Expression made = tuple_of([&] { return primary(with_attributes); }, /*in_parentheses=*/false, end);
  require_target(made);
  return made;
}

Expression Parser::name_target() {
  const Place place = token().place;
  const std::string name = expect_name();
  for (const char* constant : {"true", "false", "none", "True", "False", "None"})
    if (name == constant) throw SyntaxError(place, fmt::format("cannot assign to '{}'", name));
  return {.kind = NodeKind::kName, .place = place, .name = name};
}

// --- Operators, by their rank ---

Expression Parser::expression(bool with_condition) {
  const Nesting nesting;
  return with_condition ? conditional() : disjunction();
}

Expression Parser::expressions(bool with_condition, bool in_parentheses, std::string_view end) {
  return tuple_of([&] { return expression(with_condition); }, in_parentheses, end);
}

template <class Read>
Expression Parser::tuple_of(const Read& read, bool in_parentheses, std::string_view end) {
  const Place place = token().place;
  const auto is_end = [&] {
    return is(Token::Kind::kOutputEnd) || is(Token::Kind::kBlockEnd) || is_operator(")") ||
           (!end.empty() && is_word(end));
  };
  std::vector<Expression> parts;
  bool is_tuple = false;
  while (true) {
    if (!parts.empty()) expect_operator(",");
    if (is_end()) break;
    parts.push_back(read());
    if (!is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  if (!is_tuple && !in_parentheses) fail_unexpected("an expression");
  return made_of(NodeKind::kTuple, place, std::move(parts));
}

Expression Parser::conditional() {
  const Nesting nesting;
  Expression made = disjunction();
  while (is_word("if")) {
    const Place place = take().place;
    std::vector<Expression> parts;
    parts.push_back(disjunction());
    parts.push_back(std::move(made));
    if (skip_word("else")) parts.push_back(conditional());
    made = made_of(NodeKind::kConditional, place, std::move(parts));
  }
  return made;
}

Expression Parser::disjunction() {
  Expression made = conjunction();
  while (is_word("or")) {
    const Place place = take().place;
    made = made_of(NodeKind::kOr, place, pair_of(std::move(made), conjunction()));
  }
  return made;
}

Expression Parser::conjunction() {
  Expression made = negation();
  while (is_word("and")) {
    const Place place = take().place;
    made = made_of(NodeKind::kAnd, place, pair_of(std::move(made), negation()));
  }
  return made;
}

Expression Parser::negation() {
  const Nesting nesting;
  if (!is_word("not")) return comparison();
  const Place place = take().place;
  return made_of(NodeKind::kNot, place, one_of(negation()));
}

Expression Parser::comparison() {
  const Place place = token().place;
  std::vector<Expression> parts;
  parts.push_back(sum());
  std::vector<std::string> operators;
  while (true) {
    const bool is_not_in = is_word("not") && following().kind == Token::Kind::kName && following().text == "in";
    bool is_sign = false;
    for (const char* sign : {"==", "!=", "<", "<=", ">", ">="}) is_sign = is_sign || is_operator(sign);
    if (is_not_in)
      take();
    else if (!is_sign && !is_word("in"))
      break;
    operators.push_back(is_not_in ? take(), std::string("not in") : take().text);
    parts.push_back(sum());
  }
  if (operators.empty()) return std::move(parts[0]);
  Expression made = made_of(NodeKind::kComparison, place, std::move(parts));
  made.operators = std::move(operators);
  return made;
}

Expression Parser::sum() {
  Expression made = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const Token sign = take();
    made = made_of(NodeKind::kOperation, sign.place, pair_of(std::move(made), concatenation()), sign.text);
  }
  return made;
}

Expression Parser::concatenation() {
  const Place place = token().place;
  std::vector<Expression> parts;
  parts.push_back(product());
  while (skip_operator("~")) parts.push_back(product());
  return parts.size() == 1 ? std::move(parts[0]) : made_of(NodeKind::kConcatenation, place, std::move(parts));
}

Expression Parser::product() {
  Expression made = power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token sign = take();
    made = made_of(NodeKind::kOperation, sign.place, pair_of(std::move(made), power()), sign.text);
  }
  return made;
}

Expression Parser::power() {
  Expression made = unary();
  while (is_operator("**")) {
    const Token sign = take();
    made = made_of(NodeKind::kOperation, sign.place, pair_of(std::move(made), unary()), sign.text);
  }
  return made;
}

Expression Parser::unary(bool with_filters) {
  const Nesting nesting;
  const Place place = token().place;
  Expression made;
  if (skip_operator("-"))
    made = made_of(NodeKind::kNegative, place, one_of(unary(/*with_filters=*/false)));
  else if (skip_operator("+"))
    made = made_of(NodeKind::kPositive, place, one_of(unary(/*with_filters=*/false)));
  else
    made = primary();
  made = postfix(std::move(made));
  return with_filters ? filters_and_tests(std::move(made)) : made;
}

// --- Literals and names ---

Expression Parser::primary(bool with_attributes) {
  const Token first = token();
  if (first.kind == Token::Kind::kName) {
    take();
    if (first.text == "true" || first.text == "True") return constant(first.place, Value::boolean(true));
    if (first.text == "false" || first.text == "False") return constant(first.place, Value::boolean(false));
    if (first.text == "none" || first.text == "None") return constant(first.place, Value());
    Expression made{.kind = NodeKind::kName, .place = first.place, .name = first.text};
    if (with_attributes && skip_operator(".")) return made_of(NodeKind::kAttribute, first.place, {made}, expect_name());
    for (Statement* callable : callables_) {
      callable->uses_caller = callable->uses_caller || first.text == "caller";
      callable->uses_values = callable->uses_values || first.text == "varargs";
      callable->uses_named = callable->uses_named || first.text == "kwargs";
    }
    return made;
  }
  if (first.kind == Token::Kind::kText) {
    std::string text;
    while (is(Token::Kind::kText)) text += take().text;
    return constant(first.place, Value::text(std::move(text)));
  }
  if (first.kind == Token::Kind::kInteger) return constant(first.place, Value::integer(take().integer));
  if (first.kind == Token::Kind::kReal) return constant(first.place, Value::real(take().real));
  if (skip_operator("(")) {
    Expression made = expressions(/*with_condition=*/true, /*in_parentheses=*/true);
    expect_operator(")");
    return made;
  }
  if (is_operator("[")) return list_literal();
  if (is_operator("{")) return mapping_literal();
  fail_unexpected("an expression");
}

Expression Parser::list_literal() {
  const Nesting nesting;
  Expression made = made_of(NodeKind::kList, take().place, {});
  while (!is_operator("]")) {
    if (!made.parts.empty()) expect_operator(",");
    if (is_operator("]")) break;
    made.parts.push_back(expression());
  }
  expect_operator("]");
  return made;
}

Expression Parser::mapping_literal() {
  const Nesting nesting;
  Expression made = made_of(NodeKind::kMapping, take().place, {});
  while (!is_operator("}")) {
    if (!made.parts.empty()) expect_operator(",");
    if (is_operator("}")) break;
    made.parts.push_back(expression());
    expect_operator(":");
    made.parts.push_back(expression());
  }
  expect_operator("}");
  return made;
}

}  // namespace gantry::jinja
