// Escapes in the literals of a template, as Python reads them.
#include <fmt/format.h>
#include <unicode/uchar.h>

#include "gantry/data/jinja/lexer.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

class Unescaper {
 public:
  Unescaper(const std::string& literal, Place place) : literal_(literal), place_(place) {}

  std::string run() {
    while (at_ < literal_.size()) {
      if (literal_[at_] != '\\' || at_ + 1 == literal_.size()) {
        made_ += literal_[at_++];
        continue;
      }
      ++at_;
      read_escape(literal_[at_++]);
    }
    return std::move(made_);
  }

 private:
  void read_escape(char kind) {
    static constexpr std::string_view kKinds = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
    if (const auto place = kKinds.find(kind); place != std::string_view::npos)
      made_ += kMeant[place];
    else if (kind == 'x')
      append_utf8(hexadecimal(2), made_);
    else if (kind == 'u')
      append_utf8(hexadecimal(4), made_);
    else if (kind == 'U')
      append_utf8(hexadecimal(8), made_);
    else if (kind == 'N')
      append_utf8(named(), made_);
    else if (kind >= '0' && kind <= '7')
      read_octal(kind);
    else if (kind != '\n')
      made_ += '\\', made_ += kind;
  }

  // \N{NAME}
  char32_t named() {
    const auto end = literal_.find('}', at_);
    if (at_ == literal_.size() || literal_[at_] != '{' || end == std::string::npos)
      throw SyntaxError(place_, "a malformed \\N escape in a string");
    const std::string name = upper(literal_.substr(at_ + 1, end - at_ - 1));
    UErrorCode error = U_ZERO_ERROR;
    const UChar32 point = u_charFromName(U_UNICODE_CHAR_NAME, name.c_str(), &error);
    if (U_FAILURE(error)) throw SyntaxError(place_, fmt::format("no character is named '{}'", name));
    at_ = end + 1;
    return static_cast<char32_t>(point);
  }

  void read_octal(char first) {
    char32_t point = static_cast<char32_t>(first - '0');
    for (int i = 0; i < 2 && at_ < literal_.size() && literal_[at_] >= '0' && literal_[at_] <= '7'; ++i)
      point = 8 * point + static_cast<char32_t>(literal_[at_++] - '0');
    append_utf8(point, made_);
  }

  char32_t hexadecimal(std::size_t digits) {
    const std::string text = literal_.substr(at_, digits);
    if (text.size() != digits || text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      throw SyntaxError(place_, fmt::format("a truncated escape of {} digits in a string", digits));
    at_ += digits;
    const unsigned long point = std::stoul(text, nullptr, 16);
    if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
      throw SyntaxError(place_, fmt::format("\\u{} in a string is not a character", text));
    return static_cast<char32_t>(point);
  }

  const std::string& literal_;
  Place place_;
  std::size_t at_ = 0;
  std::string made_;
};

}  // namespace

std::string unescaped(const std::string& literal, Place place) { return Unescaper(literal, place).run(); }

}  // namespace gantry::jinja
