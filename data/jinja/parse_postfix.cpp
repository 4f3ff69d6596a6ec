// The parts after an expression: attributes, indexes, calls, filters and tests.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/parser.h"
#include "gantry/data/jinja/syntax_nodes.h"

namespace gantry::jinja {
namespace {

using NodeKind = Expression::Kind;

}  // namespace

Expression Parser::postfix(Expression made) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      made = subscript(std::move(made));
    } else if (is_operator("(")) {
      const Place place = token().place;
      made = made_of(NodeKind::kCall, place, one_of(std::move(made)));
      made.arguments = call_arguments();
    } else {
      return made;
    }
  }
}

Expression Parser::filters_and_tests(Expression made) {
  while (true) {
    if (is_operator("|")) {
      made = filters(one_of(std::move(made)), /*is_first_named=*/false);
    } else if (is_word("is")) {
      made = test(std::move(made));
    } else if (is_operator("(")) {
      const Place place = token().place;
      made = made_of(NodeKind::kCall, place, one_of(std::move(made)));
      made.arguments = call_arguments();
    } else {
      return made;
    }
  }
}

Expression Parser::subscript(Expression made) {
  const Token sign = take();
  if (sign.text == ".") {
    const Token name = take();
    if (name.kind == Token::Kind::kName)
      return made_of(NodeKind::kAttribute, name.place, one_of(std::move(made)), name.text);
    if (name.kind != Token::Kind::kInteger) throw SyntaxError(name.place, "expected a name or a number after '.'");
    return made_of(NodeKind::kItem, name.place,
                   pair_of(std::move(made), constant(name.place, Value::integer(name.integer))));
  }
  made = subscribed(std::move(made));
  if (is_operator(",") && made.kind == NodeKind::kItem) {
    std::vector<Expression> keys = one_of(std::move(made.parts[1]));
    while (skip_operator(",")) keys.push_back(expression());
    made.parts[1] = made_of(NodeKind::kTuple, made.place, std::move(keys));
  }
  expect_operator("]");
  return made;
}

Expression Parser::subscribed(Expression of) {
  const Place place = token().place;
  const auto is_bound = [&] { return !is_operator(":") && !is_operator("]") && !is_operator(","); };
  std::vector<Expression> parts;
  parts.push_back(std::move(of));
  if (is_operator("]")) fail_unexpected("an index");
  if (!is_operator(":")) parts.push_back(expression());
  if (parts.size() == 2 && !is_operator(":")) return made_of(NodeKind::kItem, place, std::move(parts));
  if (parts.size() == 1) parts.push_back(constant(place, Value()));
  take();
  parts.push_back(is_bound() ? expression() : constant(place, Value()));
  const bool has_step = skip_operator(":") && is_bound();
  parts.push_back(has_step ? expression() : constant(place, Value()));
  return made_of(NodeKind::kSlice, place, std::move(parts));
}

Expression Parser::filters(std::vector<Expression> of, bool is_first_named) {
  Expression made;
  for (bool is_named = is_first_named; is_named || is_operator("|"); is_named = false) {
    const Nesting nesting;
    if (!is_named) take();
    const Place place = token().place;
    std::string name = expect_name();
    while (skip_operator(".")) name += "." + expect_name();
    made = made_of(NodeKind::kFilter, place, std::move(of), name);
    if (is_operator("(")) made.arguments = call_arguments();
    of = {};
    if (is_operator("|")) of.push_back(std::exchange(made, {}));
  }
  return made;
}

Expression Parser::test(Expression of) {
  take();
  const bool is_negated = skip_word("not");
  const Place place = token().place;
  std::string name = expect_name();
  while (skip_operator(".")) name += "." + expect_name();
  Expression made = made_of(NodeKind::kTest, place, one_of(std::move(of)), name);
  const bool is_value = is(Token::Kind::kName) || is(Token::Kind::kText) || is(Token::Kind::kInteger) ||
                        is(Token::Kind::kReal) || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    made.arguments = call_arguments();
  } else if (is_value && !is_word_of({"else", "or", "and"})) {
    if (is_word("is")) fail("tests cannot be chained with 'is'");
    made.arguments.push_back({.value = postfix(primary())});
  }
  return is_negated ? made_of(NodeKind::kNot, place, one_of(std::move(made))) : made;
}

std::vector<Argument> Parser::call_arguments() {
  const Nesting nesting;
  std::vector<Argument> made;
  using Passed = Argument::Kind;
  const auto require = [&](bool holds) {
    if (!holds) fail("invalid syntax in the arguments of a call");
  };
  const auto has = [&](Passed kind) {
    return std::ranges::any_of(made, [&](const auto& each) { return each.kind == kind; });
  };
  expect_operator("(");
  while (!is_operator(")")) {
    if (!made.empty()) {
      expect_operator(",");
      if (is_operator(")")) break;
    }
    require(!has(Passed::kSpreadNamed));
    if (skip_operator("*")) {
      require(!has(Passed::kSpread));
      made.push_back({.kind = Passed::kSpread, .value = expression()});
    } else if (skip_operator("**")) {
      made.push_back({.kind = Passed::kSpreadNamed, .value = expression()});
    } else if (is(Token::Kind::kName) && following().kind == Token::Kind::kOperator && following().text == "=") {
      const std::string name = take().text;
      take();
      if (std::ranges::any_of(made, [&](const auto& each) { return each.name == name; }))
        fail(fmt::format("the argument '{}' is given twice", name));
      made.push_back({.kind = Passed::kNamed, .name = name, .value = expression()});
    } else {
      require(!has(Passed::kSpread) && !has(Passed::kNamed));
      made.push_back({.value = expression()});
    }
  }
  expect_operator(")");
  return made;
}

}  // namespace gantry::jinja
