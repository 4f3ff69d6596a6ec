// Parses tokens into a tree, with the grammar of jinja2.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/data/jinja/syntax.h"

namespace gantry::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::vector<Statement> parse();

 private:
  using Words = std::initializer_list<std::string_view>;

  // --- Tokens ---
  const Token& token() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is(Token::Kind kind) const { return token().kind == kind; }
  bool is_operator(std::string_view text) const { return is(Token::Kind::kOperator) && token().text == text; }
  bool is_word(std::string_view text) const { return is(Token::Kind::kName) && token().text == text; }
  bool is_word_of(Words words) const;
  bool skip_operator(std::string_view text);
  bool skip_word(std::string_view text);
  void expect_operator(std::string_view text);
  void expect_word(std::string_view text);
  std::string expect_name();
  void expect_block_end();
  [[noreturn]] void fail(const std::string& fault) const;
  [[noreturn]] void fail_unexpected(std::string_view expected) const;

  // --- Statements: parse_statement.cpp ---
  // Parses statements until a block begins with one of the words, which is then the next token.
  std::vector<Statement> statements(Words ends, std::string_view of);
  std::vector<Statement> body(Words ends, std::string_view of);  // skips the end of the opening tag first
  std::vector<Statement> whole_body(std::string_view end, std::string_view of);  // consumes `end` too
  Statement statement();
  Statement for_statement(Statement made);
  Statement if_statement(Statement made);
  Statement set_statement(Statement made);
  Statement macro_statement(Statement made);
  Statement call_statement(Statement made);
  Statement with_statement(Statement made);
  Statement block_statement(Statement made);
  std::vector<Parameter> parameters();
  // Reads a body, and records in `made` which special variables it names.
  void read_callable_body(std::string_view end, std::string_view of, Statement& made);

  // --- Expressions: parse_expression.cpp ---
  Expression target(bool with_attributes, std::string_view end = "");
  Expression name_target();
  void require_target(const Expression& target) const;
  Expression expression(bool with_condition = true);
  // Also tuples without parentheses.
  Expression expressions(bool with_condition = true, bool in_parentheses = false, std::string_view end = "");
  template <class Read>
  Expression tuple_of(const Read& read, bool in_parentheses, std::string_view end);
  Expression conditional();
  Expression disjunction();
  Expression conjunction();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression power();
  Expression unary(bool with_filters = true);
  Expression primary(bool with_attributes = false);
  Expression list_literal();
  Expression mapping_literal();
  Expression postfix(Expression made);
  Expression filters_and_tests(Expression made);
  Expression subscript(Expression made);
  Expression subscribed(Expression of);
  Expression filters(std::vector<Expression> of, bool is_first_named);
  Expression test(Expression of);
  std::vector<Argument> call_arguments();

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int loops_ = 0;                      // that surround the statement, within one callable
  std::vector<Statement*> callables_;  // that surround it
};

}  // namespace gantry::jinja
