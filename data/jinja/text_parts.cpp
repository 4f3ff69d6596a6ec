// Parts of a text: split(), splitlines() and replace() of str.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/methods.h"
#include "gantry/data/jinja/unicode.h"

namespace gantry::jinja {
namespace {

// Splits at runs of white space, which are also removed at both ends. If `most` ends the splitting, the last
// part keeps the white space at its far end.
Values split_at_spaces(std::string_view text, Integer most, bool from_right) {
  auto each = characters(text);
  if (from_right) std::ranges::reverse(each);
  const auto is_gap = [](std::string_view character) { return is_space(code_points(character)[0]); };
  Values made;
  for (auto at = std::ranges::find_if_not(each, is_gap); at != each.end();) {
    const bool is_last = most >= 0 && static_cast<Integer>(made.size()) == most;
    const auto end = is_last ? each.end() : std::find_if(at, each.end(), is_gap);
    const char* first = from_right ? (end - 1)->data() : at->data();
    const std::string_view last = from_right ? *at : *(end - 1);
    made.push_back(Value::text(std::string(first, last.data() + last.size())));
    at = std::find_if_not(end, each.end(), is_gap);
  }
  if (from_right) std::ranges::reverse(made);
  return made;
}

}  // namespace

Values split_text(const std::string& text, const Value& separator, Integer most, bool from_right) {
  if (separator.is_none()) return split_at_spaces(text, most, from_right);
  if (!separator.is_text())
    throw RenderError(fmt::format("the separator is of type {}; expected str or None", separator.type_name()));
  const std::string& mark = separator.bytes();
  if (mark.empty()) throw RenderError("empty separator");
  Values made;
  std::string_view rest = text;
  while (most < 0 || static_cast<Integer>(made.size()) < most) {
    const auto at = from_right ? rest.rfind(mark) : rest.find(mark);
    if (at == std::string_view::npos) break;
    made.push_back(Value::text(std::string(from_right ? rest.substr(at + mark.size()) : rest.substr(0, at))));
    rest = from_right ? rest.substr(0, at) : rest.substr(at + mark.size());
  }
  made.push_back(Value::text(std::string(rest)));
  if (from_right) std::ranges::reverse(made);
  return made;
}

Values split_lines(const std::string& text, bool keeps_ends) {
  Values made;
  std::string line;
  const auto each = characters(text);
  for (std::size_t i = 0; i < each.size(); ++i) {
    if (!is_line_break(code_points(each[i])[0])) {
      line += each[i];
      continue;
    }
    const bool is_pair = each[i] == "\r" && i + 1 < each.size() && each[i + 1] == "\n";
    if (keeps_ends) line += is_pair ? "\r\n" : std::string(each[i]);
    if (is_pair) ++i;
    made.push_back(Value::text(std::exchange(line, "")));
  }
  if (!line.empty()) made.push_back(Value::text(line));
  return made;
}

std::string replaced(const std::string& text, const std::string& old, const std::string& with, Integer most) {
  std::string made;
  Integer count = 0;
  const auto takes = [&] { return most < 0 || count < most; };
  if (old.empty()) {
    for (const auto character : characters(text)) {
      if (takes()) made += with, ++count;
      made += character;
      require_text_size(1, made.size());
    }
    return takes() ? made + with : made;
  }
  std::size_t at = 0;
  for (auto found = text.find(old); found != std::string::npos && takes(); found = text.find(old, at), ++count) {
    made.append(text, at, found - at);
    made += with;
    require_text_size(1, made.size());
    at = found + old.size();
  }
  return made.append(text, at, std::string::npos);
}

}  // namespace gantry::jinja
