#include "gantry/data/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "gantry/data/jinja/arithmetic.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

using TokenKind = Token::Kind;

// Line breaks become "\n", and one at the end is not part of a template.
std::string normalized(const std::string& source) {
  std::string made;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    made += source[i] == '\r' ? '\n' : source[i];
  }
  if (made.ends_with('\n')) made.pop_back();
  return made;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    if (!is_utf8(source_)) fail("the template is not UTF-8");
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      if (tag == std::string::npos) {
        add_data(source_.substr(at_));
        break;
      }
      read_data(tag);
      if (source_[tag + 1] == '#')
        skip_comment();
      else if (source_[tag + 1] == '{')
        read_tag(TokenKind::kOutputBegin, TokenKind::kOutputEnd, "}}");
      else if (!read_raw())
        read_tag(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const { throw SyntaxError(place(), fault); }

  Place place() const { return {row_, static_cast<int>(at_ - row_begin_) + 1}; }

  // Moves to `end`, counting rows.
  void move_to(std::size_t end) {
    for (; at_ < end; ++at_)
      if (source_[at_] == '\n') ++row_, row_begin_ = at_ + 1;
  }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .place = place(), .text = std::move(text)});
  }

  void add_data(std::string text) {
    if (!text.empty()) add(TokenKind::kData, std::move(text));
  }

  std::size_t next_tag() const {
    for (std::size_t at = source_.find('{', at_); at != std::string::npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() && (source_[at + 1] == '%' || source_[at + 1] == '{' || source_[at + 1] == '#'))
        return at;
    return std::string::npos;
  }

  char char_at(std::size_t at) const { return at < source_.size() ? source_[at] : '\0'; }

  // The text before a tag, without the white space that the tag takes away.
  std::string before_tag(std::string text, std::size_t tag, bool is_output) const {
    const char sign = char_at(tag + 2);
    if (sign == '-') return std::string(without_right(text, {}));
    if (sign == '+' || is_output) return text;
    const std::size_t line = text.rfind('\n') + 1;  // 0 without one
    if (line == 0 && !starts_line_) return text;
    const std::string_view rest = std::string_view(text).substr(line);
    return !rest.empty() && without_left(rest, {}).empty() ? text.substr(0, line) : text;
  }

  void read_data(std::size_t tag) {
    add_data(before_tag(source_.substr(at_, tag - at_), tag, source_[tag + 1] == '{'));
    move_to(tag);
  }

  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    move_to(at_ + rest.size() - without_left(rest, {}).size());
  }

  // Removes the white space after "-%}", one line break after "%}", and nothing after "+%}".
  void end_tag(char sign, bool trims) {
    move_to(at_ + 2);
    if (sign == '-')
      skip_space();
    else if (sign != '+' && trims && char_at(at_) == '\n')
      move_to(at_ + 1);
    starts_line_ = source_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail("missing end of comment tag");
    const char sign = end > at_ + 2 ? source_[end - 1] : '\0';
    move_to(end);
    end_tag(sign, /*trims=*/true);
  }

  // Returns the position after `word` and the white space around it, from `at` on; npos if `word` is not
  // there.
  std::size_t behind_word(std::size_t at, std::string_view word) const {
    const std::string_view rest = without_left(std::string_view(source_).substr(at), {});
    if (!rest.starts_with(word)) return std::string::npos;
    const std::string_view behind = without_left(rest.substr(word.size()), {});
    return source_.size() - behind.size();
  }

  std::size_t behind_sign(std::size_t at) const { return char_at(at) == '-' || char_at(at) == '+' ? at + 1 : at; }

  // {% raw %}...{% endraw %}; false for another tag.
  bool read_raw() {
    const std::size_t begin = behind_word(behind_sign(at_ + 2), "raw");
    if (begin == std::string::npos) return false;
    const bool strips = char_at(begin) == '-';
    const std::size_t close = strips ? begin + 1 : begin;
    if (source_.compare(close, 2, "%}") != 0) return false;
    move_to(close);
    end_tag(strips ? '-' : '+', /*trims=*/false);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      std::size_t end = behind_word(behind_sign(tag + 2), "endraw");
      if (end == std::string::npos) continue;
      const char sign = char_at(end) == '-' || char_at(end) == '+' ? source_[end++] : '\0';
      if (source_.compare(end, 2, "%}") != 0) continue;
      read_data_of_raw(tag);
      move_to(end);
      end_tag(sign, /*trims=*/true);
      return true;
    }
    fail("missing end of raw directive");
  }

  void read_data_of_raw(std::size_t tag) {
    add_data(before_tag(source_.substr(at_, tag - at_), tag, /*is_output=*/false));
    move_to(tag);
  }

  void read_tag(TokenKind begin, TokenKind end, std::string_view close) {
    add(begin, "");
    move_to(behind_sign(at_ + 2));
    open_.clear();
    const bool is_block = begin == TokenKind::kBlockBegin;
    while (true) {
      skip_space();
      if (at_ == source_.size()) fail(fmt::format("unexpected end of template; expected '{}'", close));
      const char sign = source_[at_] == '-' || (is_block && source_[at_] == '+') ? source_[at_] : '\0';
      const std::size_t skipped = sign == '\0' ? 0 : 1;
      if (open_.empty() && source_.compare(at_ + skipped, 2, close) == 0) {
        add(end, std::string(close));
        move_to(at_ + skipped);
        return end_tag(sign, is_block);
      }
      read_token();
    }
  }

  void read_token() {
    const char c = source_[at_];
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_text();
    std::size_t end = at_;
    while (end < source_.size()) {
      const std::size_t width = byte_of(std::string_view(source_).substr(end, 4), 1);
      if (!is_word_character(code_points(std::string_view(source_).substr(end, width))[0])) break;
      end += width;
    }
    if (end > at_) return read_name(end);
    read_operator();
  }

  void read_name(std::size_t end) {
    const std::string name = source_.substr(at_, end - at_);
    const std::u32string points = code_points(name);
    if (!starts_identifier(points[0]) || !std::ranges::all_of(points, continues_identifier))
      fail("invalid character in identifier");
    add(TokenKind::kName, name);
    move_to(end);
  }

  // Digits with single underscores between them.
  std::size_t behind_digits(std::size_t at) const {
    while (is_digit(char_at(at)) || (char_at(at) == '_' && is_digit(char_at(at + 1)))) ++at;
    return at;
  }

  void read_number() {
    const std::size_t digits = behind_digits(at_);
    std::size_t end = digits;
    const bool follows_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!follows_dot && char_at(end) == '.' && is_digit(char_at(end + 1))) end = behind_digits(end + 1);
    if (!follows_dot && (char_at(end) | 0x20) == 'e') {
      const std::size_t exponent = char_at(end + 1) == '+' || char_at(end + 1) == '-' ? end + 2 : end + 1;
      if (is_digit(char_at(exponent))) end = behind_digits(exponent);
    }
    if (end > digits) {
      add(TokenKind::kReal, source_.substr(at_, end - at_));
      tokens_.back().real = *read_real(tokens_.back().text);
      return move_to(end);
    }
    const char prefix = static_cast<char>(char_at(at_ + 1) | 0x20);
    if (source_[at_] == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b'))
      for (end = at_ + 2; std::isxdigit(static_cast<unsigned char>(char_at(end))) || char_at(end) == '_'; ++end) {
      }
    const std::string text = source_.substr(at_, end - at_);
    const auto number = read_integer(text, end > digits ? 0 : 10);
    if (!number) fail("an integer that cannot be read");
    add(TokenKind::kInteger, text);
    tokens_.back().integer = *number;
    move_to(end);
  }

  void read_text() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (char_at(end) != quote) {
      end += source_[end < source_.size() ? end : 0] == '\\' ? 2 : 1;
      if (end >= source_.size()) fail("a string without an end");
    }
    add(TokenKind::kText, unescaped(source_.substr(at_ + 1, end - at_ - 1), place()));
    move_to(end + 1);
  }

  void read_operator() {
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const std::string_view rest = std::string_view(source_).substr(at_);
    const auto* found = std::ranges::find_if(kOperators, [&](auto each) { return rest.starts_with(each); });
    if (found == kOperators.end()) fail(fmt::format("unexpected character '{}'", rest.substr(0, byte_of(rest, 1))));
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) fail(fmt::format("unexpected '{}'", c));
      if (open_.back() != c) fail(fmt::format("unexpected '{}'; expected '{}'", c, open_.back()));
      open_.pop_back();
    }
    add(TokenKind::kOperator, std::string(*found));
    move_to(at_ + found->size());
  }

  std::string source_;
  std::size_t at_ = 0, row_begin_ = 0;
  int row_ = 1;
  bool starts_line_ = true;
  std::string open_;  // the closing brackets that are missing
  std::vector<Token> tokens_;
};

}  // namespace

SyntaxError::SyntaxError(Place place, const std::string& fault)
    : RenderError(fmt::format("row {}, column {}: {}", place.row, place.column, fault)) {}

std::vector<Token> tokens_of(const std::string& source) { return Lexer(source).run(); }

}  // namespace gantry::jinja
