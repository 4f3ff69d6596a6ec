#include "gantry/data/jinja/parser.h"

#include <algorithm>
#include <fmt/format.h>

namespace gantry::jinja {
namespace {

constexpr int kDeepestSyntax = 400;

std::string described(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData:
      return "text";
    case Token::Kind::kBlockBegin:
      return "begin of statement block";
    case Token::Kind::kBlockEnd:
      return "end of statement block";
    case Token::Kind::kOutputBegin:
      return "begin of print statement";
    case Token::Kind::kOutputEnd:
      return "end of print statement";
    case Token::Kind::kText:
      return "a string";
    case Token::Kind::kEnd:
      return "end of template";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

Token Parser::take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }

bool Parser::is_word_of(Words words) const {
  return is(Token::Kind::kName) && std::ranges::find(words, token().text) != words.end();
}

bool Parser::skip_operator(std::string_view text) { return is_operator(text) ? take(), true : false; }
bool Parser::skip_word(std::string_view text) { return is_word(text) ? take(), true : false; }

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_unexpected("'" + std::string(text) + "'");
}

void Parser::expect_word(std::string_view text) {
  if (!skip_word(text)) fail_unexpected("'" + std::string(text) + "'");
}

std::string Parser::expect_name() {
  if (!is(Token::Kind::kName)) fail_unexpected("a name");
  return take().text;
}

void Parser::expect_block_end() {
  if (!is(Token::Kind::kBlockEnd)) fail_unexpected("'%}'");
  take();
}

void Parser::fail(const std::string& fault) const { throw SyntaxError(token().place, fault); }

void Parser::fail_unexpected(std::string_view expected) const {
  fail(fmt::format("unexpected {}; expected {}", described(token()), expected));
}

std::vector<Statement> Parser::parse() {
  const Limits limits;
  const Meter meter({.steps = limits.steps, .bytes = limits.bytes, .output = 0, .depth = kDeepestSyntax});
  return statements({}, "");
}

std::vector<Statement> parsed(const std::string& source) {
  try {
    return Parser(tokens_of(source)).parse();
  } catch (const SyntaxError&) {
    throw;
  } catch (const RenderError& error) {
    throw SyntaxError({}, error.what());
  }
}

}  // namespace gantry::jinja
