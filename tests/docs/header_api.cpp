#include "header_api.h"

#include <algorithm>
#include <regex>
#include <sstream>

namespace gantry::testing {
namespace {

using Lines = std::vector<std::string>;

Lines split_lines(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

std::size_t indent_of(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

bool is_comment(const std::string& line) { return line.compare(indent_of(line), 2, "//") == 0; }

// Calls visit(position, character, depth of parentheses, depth of braces) for characters outside of comments and
// strings. The depths are those before the character.
template <class Visit>
void scan(const std::string& text, const Visit& visit) {
  int parentheses = 0, braces = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = text.find('\n', i);
      if (i == std::string::npos) return;
    } else if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
      continue;
    } else if (text[i] == '\'' && i + 2 < text.size() && text[i + 2] == '\'') {
      i += 2;
      continue;
    }
    visit(i, text[i], parentheses, braces);
    if (text[i] == '(') ++parentheses;
    if (text[i] == ')') --parentheses;
    if (text[i] == '{') ++braces;
    if (text[i] == '}') --braces;
  }
}

// The position at which the last line begins.
std::size_t last_line_of(const std::string& text) {
  const std::size_t end = text.size() < 2 ? std::string::npos : text.rfind('\n', text.size() - 2);
  return end == std::string::npos ? 0 : end + 1;
}

// True if the text ends with a semicolon or a body, and is more than a template's parameters and requirements.
bool is_complete(const std::string& text) {
  int depth = 0;
  char last = ' ';
  scan(text, [&](std::size_t, char c, int parentheses, int braces) {
    if (!std::isspace(static_cast<unsigned char>(c))) last = c;
    depth = parentheses + braces + (c == '(' || c == '{') - (c == ')' || c == '}');
  });
  const bool is_constraint =
      text.rfind("\nrequires ") != std::string::npos && text.rfind("\nrequires ") + 1 == last_line_of(text);
  return depth == 0 && (last == ';' || last == '}') && !is_constraint;
}

bool is_type(const std::string& code) {
  static const std::regex kType("^\\s*(template <[^\\n]*>\\s+)?(class|struct|enum class|enum|union) [^;(=]*\\{");
  return std::regex_search(code, kType, std::regex_constants::match_continuous);
}

// The position at which a function's body or a constructor's member initializers begin; npos if there are
// none.
std::size_t body_of(const std::string& code) {
  std::size_t at = std::string::npos;
  bool has_parameters = false;
  char last = ' ';
  scan(code, [&](std::size_t i, char c, int parentheses, int braces) {
    if (at == std::string::npos && parentheses == 0 && braces == 0 && has_parameters && std::isspace(code[i - 1]))
      if ((c == '{' && last != '=') || (c == ':' && last == ')' && code[i + 1] == ' ')) at = i;
    if (c == ')' && parentheses == 1) has_parameters = true;
    if (!std::isspace(static_cast<unsigned char>(c))) last = c;
  });
  return at;
}

// A comment after the body stays.
std::string without_body(const std::string& code) {
  const std::size_t constraint = code.find("\nrequires ");
  const std::size_t begin = constraint == std::string::npos ? 0 : code.find('\n', constraint + 1) + 1;
  const std::string declared = code.substr(begin);
  const std::size_t body = body_of(declared);
  if (body == std::string::npos) return code;
  const std::size_t note = declared.find("  // ", last_line_of(declared));
  return code.substr(0, begin) + declared.substr(0, declared.find_last_not_of(" \n", body - 1) + 1) + ";" +
         (note == std::string::npos ? "\n" : declared.substr(note));
}

std::string interface_of(const std::string& code);

// The public members of a class with their comments.
Lines public_members(const Lines& body, bool is_class) {
  Lines kept, comment;
  bool is_public = !is_class;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const std::string& line = body[i];
    const std::string word = line.substr(indent_of(line));
    if (word == "public:" || word == "protected:" || word == "private:") {
      is_public = word != "private:";
      if (is_public && !(is_class && kept.empty() && word == "public:")) kept.push_back(line);
      comment.clear();
      continue;
    }
    if (word.empty() || is_comment(line)) {
      comment.push_back(line);
      continue;
    }
    Lines member{line};
    while (!is_complete(joined(member)) && i + 1 < body.size()) member.push_back(body[++i]);
    if (is_public && !word.starts_with("friend ")) {
      kept.insert(kept.end(), comment.begin(), comment.end());
      const Lines shown = split_lines(interface_of(joined(member)));
      kept.insert(kept.end(), shown.begin(), shown.end());
    }
    comment.clear();
  }
  while (!kept.empty() && (kept.back().empty() || kept.back().ends_with("ed:"))) kept.pop_back();
  while (!kept.empty() && kept.front().empty()) kept.erase(kept.begin());
  return kept;
}

// A declaration without bodies and private members.
std::string interface_of(const std::string& code) {
  if (!is_type(code)) return without_body(code);
  const std::string head = code.substr(0, code.find('{') + 1);
  if (head.find("enum") != std::string::npos || code.find('\n') == code.size() - 1) return code;
  const Lines lines = split_lines(code);
  const auto opened = static_cast<std::size_t>(std::count(head.begin(), head.end(), '\n')) + 1;
  if (lines.size() < opened + 1) return code;
  const Lines body(lines.begin() + static_cast<std::ptrdiff_t>(opened), lines.end() - 1);
  static const std::regex kClass("(^|>\\s+)\\s*class ");
  return head + "\n" + joined(public_members(body, std::regex_search(head, kClass))) + lines.back() + "\n";
}

std::string name_of(const std::string& code) {
  static const std::regex kType("(class|struct|enum class|enum|union) (?:\\[\\[[a-z]+\\]\\] )?([A-Za-z_0-9]+)");
  static const std::regex kAlias("using ([A-Za-z_0-9]+) =");
  static const std::regex kMacro("#define ([A-Z_0-9]+)");
  static const std::regex kFunction("(operator[^ (]+|~?[A-Za-z_0-9]+)\\(");
  static const std::regex kConstant("([A-Za-z_0-9]+)(?:\\[[^\\]]*\\])*(?:\\s*=\\s|\\{|;)");
  static const std::regex kHolder("^TORCH_MODULE\\(([A-Za-z_0-9]+)\\)");
  const std::string text = std::regex_replace(code, std::regex("template <[^\\n]*>\\n|requires [^\\n]*\\n"), "");
  std::smatch match;
  if (std::regex_search(text, match, kHolder)) return match[1];
  if (is_type(code) && std::regex_search(text, match, kType)) return match[1].str() + " " + match[2].str();
  if (std::regex_search(text, match, kAlias)) return match[1];
  if (std::regex_search(text, match, kMacro, std::regex_constants::match_continuous)) return match[1];
  const std::size_t call = text.find('('), equals = text.find('=');
  if (call < equals && std::regex_search(text, match, kFunction)) return match[1];
  return std::regex_search(text, match, kConstant) ? match[1].str() : "";
}

std::string uncommented(const Lines& comment) {
  std::string text;
  for (const auto& line : comment) text += (line.size() > 3 ? line.substr(3) : "") + "\n";
  return text;
}

// The name and parameters of a macro.
std::string macro_of(const std::string& line) {
  const std::size_t end = line.find(line.find('(') < line.find(' ', 8) ? ')' : ' ', 8);
  return line.substr(0, end == std::string::npos ? end : line[end] == ')' ? end + 1 : end) + "\n";
}

// The line that closes the namespace opened by line `i`.
std::size_t end_of_namespace(const Lines& lines, std::size_t i) {
  const std::string end = "}  // " + lines[i].substr(0, lines[i].size() - 2);
  while (i < lines.size() && lines[i] != end) ++i;
  return i;
}

}  // namespace

std::string purpose_of(const std::string& header) {
  Lines purpose;
  for (const auto& line : split_lines(header)) {
    if (!line.starts_with("//")) break;
    purpose.push_back(line);
  }
  return uncommented(purpose);
}

std::vector<HeaderDeclaration> declarations_in(const std::string& header) {
  static const std::regex kForward(
      "(template <[^\\n]*>\\n)?(class|struct|enum class) [A-Za-z_0-9:]+( : [a-z:_0-9]+)?;\\s*");
  static const std::regex kDirective("using namespace [A-Za-z_0-9:]+;[^\\n]*\\n");  // declares no name
  const Lines lines = split_lines(header);
  std::vector<HeaderDeclaration> found;
  Lines comment;
  bool joins = false;  // the next declaration follows the last one directly
  std::size_t i = 0;
  while (i < lines.size() && lines[i].starts_with("//")) ++i;
  for (; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with("namespace ") && line.find("detail") != std::string::npos) i = end_of_namespace(lines, i);
    const bool is_macro = line.starts_with("#define ");
    if (line.empty() || line.starts_with("namespace ") || line.starts_with("}") ||
        (line.starts_with("#") && !is_macro)) {
      comment.clear();
      joins = false;
      continue;
    }
    if (is_comment(line)) {
      comment.push_back(line);
      continue;
    }
    Lines code{line};
    if (is_macro)
      while (code.back().ends_with("\\") && i + 1 < lines.size()) code.push_back(lines[++i]);
    else
      while (!is_complete(joined(code)) && i + 1 < lines.size()) code.push_back(lines[++i]);
    const std::string text = is_macro ? macro_of(line) : interface_of(joined(code)), name = name_of(text);
    const bool is_known = std::any_of(found.begin(), found.end(), [&](const HeaderDeclaration& each) {
      return each.code.find(text) != std::string::npos;
    });
    const bool names_nothing = std::regex_match(text, kForward) || std::regex_match(text, kDirective);
    if (names_nothing || is_known || (is_macro && name.ends_with('_'))) {
      comment.clear();
      continue;
    }
    if (joins && comment.empty() && !found.empty()) {
      HeaderDeclaration& last = found.back();
      last.code += text;
      if (std::find(last.names.begin(), last.names.end(), name) == last.names.end()) last.names.push_back(name);
    } else {
      found.push_back({{name}, uncommented(comment), text});
    }
    comment.clear();
    joins = true;
  }
  return found;
}

}  // namespace gantry::testing
