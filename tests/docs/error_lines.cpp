#include "error_lines.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>

namespace gantry::testing {
namespace {

const std::map<std::string, int> kExitCodes = {{"InternalError", 1}, {"UsageError", 2},      {"ConfigError", 3},
                                               {"InputError", 4},    {"CheckpointError", 5}, {"ResourceError", 6},
                                               {"PeerError", 7},     {"NumericalError", 8},  {"UserError", 9}};

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \n\t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n\t") - begin + 1);
}

// The end of the string or character literal that begins at `at`. Returns `at` if there is no literal.
std::size_t end_of_literal(const std::string& text, std::size_t at) {
  const char quote = text[at];
  const bool separates_digits = quote == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1]));
  if ((quote != '"' && quote != '\'') || separates_digits) return at;
  if (quote == '"' && at > 0 && text[at - 1] == 'R') {
    const std::string tag = text.substr(at + 1, text.find('(', at) - at - 1);
    return text.find(")" + tag + "\"", at) + tag.size() + 2;
  }
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
  return end + 1;
}

// Removes comments and keeps the number of lines.
std::string without_comments(const std::string& source) {
  std::string text;
  for (std::size_t i = 0; i < source.size();) {
    if (source.compare(i, 2, "//") == 0) {
      while (i < source.size() && source[i] != '\n') ++i;
      continue;
    }
    const std::size_t end = std::max(end_of_literal(source, i), i + 1);
    text += source.substr(i, end - i);
    i = end;
  }
  return text;
}

// Splits a text at each `separator` outside of brackets, from `begin` to the closing bracket or the end.
std::vector<std::string> parts_of(const std::string& text, std::size_t begin, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t i = begin; i < text.size();) {
    const std::size_t end = end_of_literal(text, i);
    if (end > i) {
      parts.back() += text.substr(i, end - i);
      i = end;
      continue;
    }
    const char c = text[i++];
    if (c == ')' || c == ']' || c == '}')
      if (--depth < 0) break;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == separator && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (auto& part : parts) part = trimmed(part);
  return parts;
}

// The value of a text that consists of literals only. Returns false for any other text.
bool spelled(const std::string& text, std::string& value) {
  value.clear();
  for (std::size_t i = 0; i < text.size();) {
    if (std::isspace(static_cast<unsigned char>(text[i])) || (text[i] == 'R' && text[i + 1] == '"')) {
      ++i;
      continue;
    }
    const std::size_t end = end_of_literal(text, i);
    if (end == i) return false;
    if (i > 0 && text[i - 1] == 'R') {
      value += text.substr(i + 2, end - i - 4);
    } else {
      for (std::size_t k = i + 1; k + 1 < end; ++k)
        if (text[k] != '\\')
          value += text[k];
        else
          value += text[++k] == 'n' ? ' ' : text[k];
    }
    i = end;
  }
  return !text.empty();
}

std::string filled(const std::string& format, const std::vector<std::string>& arguments) {
  std::string text;
  std::size_t next = 1;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if ((format[i] == '{' || format[i] == '}') && i + 1 < format.size() && format[i + 1] == format[i]) {
      text += format[++i];
    } else if (format[i] == '{') {
      const std::size_t end = format.find('}', i);
      const std::string number = format.substr(i + 1, end - i - 1);
      const bool counted = !number.empty() && std::isdigit(static_cast<unsigned char>(number[0]));
      const std::size_t which = counted ? std::stoul(number) + 1 : next++;
      text += which < arguments.size() ? rendered(arguments[which]) : "...";
      i = end;
    } else {
      text += format[i];
    }
  }
  return text;
}

// The position of a character outside of brackets and literals.
std::size_t find_outside(const std::string& text, char wanted) {
  const std::string before = parts_of(text, 0, wanted).front();
  return before.size() == text.size() ? std::string::npos : text.find(wanted, before.size());
}

std::string without_repeats(std::string text) {
  for (std::size_t at; (at = text.find("......")) != std::string::npos;) text.erase(at, 3);
  return text;
}

// Replaces the parameters in an expression by the arguments of a call.
std::string substituted(std::string expression, const std::vector<std::string>& parameters,
                        const std::vector<std::string>& arguments, const std::vector<std::string>& defaults) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string value = i < arguments.size() ? arguments[i] : defaults[i];
    std::string out;
    for (std::size_t k = 0; k < expression.size();) {
      const std::size_t end = end_of_literal(expression, k);
      std::size_t word = k;
      while (word < expression.size() &&
             (std::isalnum(static_cast<unsigned char>(expression[word])) || expression[word] == '_'))
        ++word;
      if (end > k) {
        out += expression.substr(k, end - k);
        k = end;
      } else if (word > k) {
        const std::string name = expression.substr(k, word - k);
        out += name == parameters[i] ? "(" + value + ")" : name;
        k = word;
      } else {
        out += expression[k++];
      }
    }
    expression = out;
  }
  return expression;
}

struct Thrown {
  std::string kind;
  std::size_t at = 0;
  std::vector<std::string> parts;  // where, what, expected, remedy
};

std::vector<Thrown> throws_in(const std::string& text) {
  static const std::regex error("\\b([A-Z][a-z]+Error)\\(");
  static const std::regex fault("\\b(fault|faults_?\\.add)\\(");  // for a key of the configuration
  std::vector<Thrown> all;
  for (std::sregex_iterator match(text.begin(), text.end(), fault), end; match != end; ++match) {
    const auto at = static_cast<std::size_t>(match->position());
    auto arguments = parts_of(text, at + static_cast<std::size_t>(match->length()), ',');
    if ((*match)[1] != "fault" && arguments.size() > 1)
      arguments.erase(arguments.begin() + 1);  // its place in the file
    arguments.resize(4);
    const bool is_declaration = arguments[0].starts_with("const ") || arguments[1] == "what";
    if (!is_declaration) all.push_back({"ConfigError", at, arguments});
  }
  for (std::sregex_iterator match(text.begin(), text.end(), error), end; match != end; ++match) {
    if (!kExitCodes.contains((*match)[1])) continue;
    const auto at = static_cast<std::size_t>(match->position());
    auto arguments = parts_of(text, at + static_cast<std::size_t>(match->length()), ',');
    if (arguments.size() != 1 || arguments[0].empty()) continue;
    if (arguments[0].starts_with("{"))
      arguments = parts_of(arguments[0], 1, ',');
    else
      arguments = {"", arguments[0]};
    arguments.resize(4);
    all.push_back({(*match)[1], at, arguments});
  }
  return all;
}

// A function that passes its parameters to a throw.
struct Thrower {
  std::string name;
  std::size_t at = 0;
  std::vector<std::string> parameters, defaults;
};

bool find_thrower(const std::string& text, const Thrown& thrown, Thrower& found) {
  static const std::regex head("\\b([a-z_]+)\\(([^;{}()]*(?:\"\"[^;{}()]*)*)\\) *(?:const *)?\\{");
  const std::string before = text.substr(0, thrown.at);
  std::smatch last;
  for (std::sregex_iterator match(before.begin(), before.end(), head), end; match != end; ++match) {
    const std::string name = (*match)[1];
    if (name != "if" && name != "for" && name != "while" && name != "switch" && name != "catch") last = *match;
  }
  if (last.empty()) return false;
  found = {last[1], static_cast<std::size_t>(last.position()), {}, {}};
  bool any = false;
  for (const auto& parameter : parts_of(last[2].str(), 0, ',')) {
    const auto equals = parameter.find('=');
    const std::string declared = trimmed(parameter.substr(0, equals));
    const std::string name = declared.substr(declared.find_last_of(" &*") + 1);
    found.parameters.push_back(name);
    found.defaults.push_back(equals == std::string::npos ? "\"\"" : trimmed(parameter.substr(equals + 1)));
    const bool is_text = declared.find("string") != std::string::npos || declared.find("char*") != std::string::npos;
    any = any || (is_text && std::regex_search(thrown.parts[1], std::regex("\\b" + name + "\\b")));
  }
  return any;
}

int line_at(const std::string& text, std::size_t at) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// The values of constants like kDamaged in `constexpr const char* kDamaged = "..."`, by name.
std::map<std::string, std::string> constants_in(const std::string& text) {
  static const std::regex constant("\\b(k[A-Z][A-Za-z]*)(?:\\[\\])? =\\s*(\"(?:[^\"\\\\]|\\\\.)*\");");
  std::map<std::string, std::string> constants;
  for (std::sregex_iterator match(text.begin(), text.end(), constant), end; match != end; ++match)
    constants[(*match)[1]] = (*match)[2];
  return constants;
}

}  // namespace

std::string rendered(const std::string& expression) {
  const std::string text = trimmed(expression);
  if (text.empty()) return "";
  std::string value;
  if (spelled(text, value)) return value;
  value.clear();
  if (const auto question = find_outside(text, '?'); question != std::string::npos) {
    const auto choices = parts_of(text, question + 1, ':');
    const std::string yes = rendered(choices[0]),
                      no = rendered(text.substr(text.find(choices[0], question) + choices[0].size() + 2));
    return yes.empty() || no.empty() || yes == no ? (yes.empty() ? no : yes) : yes + " / " + no;
  }
  if (const auto pieces = parts_of(text, 0, '+'); pieces.size() > 1) {
    for (const auto& piece : pieces) value += rendered(piece);
    return without_repeats(value);
  }
  const auto inside = [&](const std::string& call) { return parts_of(text, call.size(), ','); };
  if (text.starts_with("fmt::format(")) {
    const auto arguments = inside("fmt::format(");
    if (std::string format; spelled(arguments[0], format)) return without_repeats(filled(format, arguments));
  }
  for (const char* call : {"std::string(", "std::string_view(", "("})
    if (text.starts_with(call)) {
      const std::string inner = parts_of(text, std::string(call).size(), '\0')[0];
      const bool full = text.size() <= std::string(call).size() + inner.size() + 3 && text.ends_with(")");
      return full ? rendered(inner) : without_repeats(rendered(inner) + "...");
    }
  return "...";
}

std::vector<ErrorLine> error_lines(const std::string& file, const std::string& source) {
  const std::string text = without_comments(source);
  const auto constants = constants_in(text);
  std::vector<ErrorLine> lines;
  const auto add = [&](const Thrown& thrown, std::size_t at, std::vector<std::string> parts) {
    for (auto& part : parts)
      for (const auto& [name, value] : constants) part = substituted(part, {name}, {value}, {});
    lines.push_back({kExitCodes.at(thrown.kind), file, line_at(text, at), rendered(parts[1]), rendered(parts[2]),
                     rendered(parts[3])});
  };
  for (const auto& thrown : throws_in(text)) {
    Thrower thrower;
    if (!find_thrower(text, thrown, thrower)) {
      add(thrown, thrown.at, thrown.parts);
      continue;
    }
    const std::regex call("\\b" + thrower.name + "\\(");
    for (std::sregex_iterator match(text.begin(), text.end(), call), end; match != end; ++match) {
      const auto at = static_cast<std::size_t>(match->position());
      if (at == thrower.at) continue;
      const auto arguments = parts_of(text, at + static_cast<std::size_t>(match->length()), ',');
      auto parts = thrown.parts;
      for (auto& part : parts) part = substituted(part, thrower.parameters, arguments, thrower.defaults);
      add(thrown, at, parts);
    }
  }
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  return lines;
}

}  // namespace gantry::testing
