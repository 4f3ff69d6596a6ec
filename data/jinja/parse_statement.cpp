#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/parser.h"

namespace gantry::jinja {
namespace {

using StatementKind = Statement::Kind;

bool is_blank(const std::vector<Statement>& body) {
  return std::ranges::all_of(body, [](const Statement& each) { return each.kind == StatementKind::kText; });
}

}  // namespace

std::vector<Statement> Parser::statements(Words ends, std::string_view of) {
  const Nesting nesting;
  std::vector<Statement> made;
  while (!is(Token::Kind::kEnd)) {
    const Token begin = take();
    if (begin.kind == Token::Kind::kData) {
      made.push_back({.kind = StatementKind::kText, .place = begin.place, .text = begin.text});
    } else if (begin.kind == Token::Kind::kOutputBegin) {
      made.push_back({.kind = StatementKind::kOutput, .place = begin.place, .expressions = {expressions()}});
      if (!is(Token::Kind::kOutputEnd)) fail_unexpected("'}}'");
      take();
    } else {
      if (is_word_of(ends)) return made;
      made.push_back(statement());
      expect_block_end();
    }
  }
  if (ends.size() > 0) fail(fmt::format("unexpected end of template; {} has no {}", of, *(ends.end() - 1)));
  return made;
}

std::vector<Statement> Parser::body(Words ends, std::string_view of) {
  skip_operator(":");
  expect_block_end();
  return statements(ends, of);
}

std::vector<Statement> Parser::whole_body(std::string_view end, std::string_view of) {
  auto made = body({end}, of);
  take();
  return made;
}

Statement Parser::statement() {
  if (!is(Token::Kind::kName)) fail_unexpected("the name of a tag");
  Statement made{.place = token().place};
  const std::string name = take().text;
  if (name == "for") return for_statement(std::move(made));
  if (name == "if") return if_statement(std::move(made));
  if (name == "set") return set_statement(std::move(made));
  if (name == "macro") return macro_statement(std::move(made));
  if (name == "call") return call_statement(std::move(made));
  if (name == "with") return with_statement(std::move(made));
  if (name == "block") return block_statement(std::move(made));
  if (name == "filter") {
    made.kind = StatementKind::kFilterBlock;
    made.expressions = {filters({}, /*is_first_named=*/true)};
    made.body = whole_body("endfilter", "filter");
    return made;
  }
  if (name == "generation") {
    made.kind = StatementKind::kGeneration;
    read_callable_body("endgeneration", "generation", made);
    return made;
  }
  if (name == "print") {
    made.kind = StatementKind::kOutput;
    while (!is(Token::Kind::kBlockEnd)) {
      if (!made.expressions.empty()) expect_operator(",");
      made.expressions.push_back(expression());
    }
    return made;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) throw SyntaxError(made.place, fmt::format("'{}' outside a loop", name));
    made.kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
    return made;
  }
  for (const char* refused : {"include", "import", "from", "extends", "autoescape"})
    if (name == refused)
      throw SyntaxError(made.place, fmt::format("the tag '{}' is not supported in chat templates", name));
  throw SyntaxError(made.place, fmt::format("unknown tag '{}'", name));
}

Statement Parser::for_statement(Statement made) {
  made.kind = StatementKind::kFor;
  made.target = target(/*with_attributes=*/false, "in");
  if (made.target.name == "loop") throw SyntaxError(made.place, "a loop cannot assign to its variable 'loop'");
  expect_word("in");
  made.expressions = {expressions(/*with_condition=*/false, /*in_parentheses=*/false, "recursive")};
  if (skip_word("if")) made.expressions.push_back(expression());
  made.is_recursive = skip_word("recursive");
  ++loops_;
  made.body = body({"else", "endfor"}, "for");
  --loops_;
  if (take().text == "else") made.otherwise = whole_body("endfor", "for");
  return made;
}

// An elif becomes an if in the else branch.
Statement Parser::if_statement(Statement made) {
  const Nesting nesting;
  made.kind = StatementKind::kIf;
  made.expressions = {expressions(/*with_condition=*/false)};
  made.body = body({"elif", "else", "endif"}, "if");
  const Place place = token().place;
  const std::string end = take().text;
  if (end == "elif") made.otherwise.push_back(if_statement({.place = place}));
  if (end == "else") made.otherwise = whole_body("endif", "if");
  return made;
}

Statement Parser::set_statement(Statement made) {
  made.target = target(/*with_attributes=*/true);
  if (skip_operator("=")) {
    made.kind = StatementKind::kSet;
    made.expressions = {expressions()};
    return made;
  }
  made.kind = StatementKind::kSetBlock;
  if (is_operator("|")) made.expressions = {filters({}, /*is_first_named=*/false)};
  made.body = whole_body("endset", "set");
  return made;
}

std::vector<Parameter> Parser::parameters() {
  std::vector<Parameter> made;
  expect_operator("(");
  while (!is_operator(")")) {
    if (!made.empty()) expect_operator(",");
    Parameter parameter{.name = name_target().name};
    if (skip_operator("=")) {
      parameter.has_default = true;
      parameter.fallback = expression();
    } else if (!made.empty() && made.back().has_default) {
      fail("non-default argument follows default argument");
    }
    made.push_back(std::move(parameter));
  }
  expect_operator(")");
  return made;
}

void Parser::read_callable_body(std::string_view end, std::string_view of, Statement& made) {
  const int loops = std::exchange(loops_, 0);
  callables_.push_back(&made);
  made.body = whole_body(end, of);
  callables_.pop_back();
  loops_ = loops;
}

Statement Parser::macro_statement(Statement made) {
  made.kind = StatementKind::kMacro;
  made.text = name_target().name;
  made.parameters = parameters();
  read_callable_body("endmacro", "macro", made);
  return made;
}

Statement Parser::call_statement(Statement made) {
  made.kind = StatementKind::kCallBlock;
  if (is_operator("(")) made.parameters = parameters();
  made.expressions = {expression()};
  if (made.expressions[0].kind != Expression::Kind::kCall) throw SyntaxError(made.place, "call: expected a call");
  read_callable_body("endcall", "call", made);
  return made;
}

Statement Parser::with_statement(Statement made) {
  made.kind = StatementKind::kWith;
  while (!is(Token::Kind::kBlockEnd)) {
    if (!made.targets.empty()) expect_operator(",");
    made.targets.push_back(target(/*with_attributes=*/false));
    expect_operator("=");
    made.expressions.push_back(expression());
  }
  made.body = whole_body("endwith", "with");
  return made;
}

Statement Parser::block_statement(Statement made) {
  made.kind = StatementKind::kBlock;
  made.text = expect_name();
  made.is_scoped = skip_word("scoped");
  const bool is_required = skip_word("required");
  const int loops = std::exchange(loops_, 0);
  made.body = whole_body("endblock", "block");
  loops_ = loops;
  if (is_required && !is_blank(made.body)) throw SyntaxError(made.place, "a required block has a body");
  skip_word(made.text);
  return made;
}

}  // namespace gantry::jinja
