#include "gantry/core/io/python_json.h"

namespace gantry {

std::string without_bare_infinity(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kObject = R"({"__float__": "Infinity"})";
  std::string made;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    const bool is_value = !in_string && (at == 0 || text[at - 1] != '-') && text.substr(at).starts_with(kWord);
    if (is_value) {
      made += kObject;
      at += kWord.size() - 1;
      continue;
    }
    made += letter;
    if (letter == '"') in_string = !in_string;
    if (letter == '\\' && in_string && at + 1 < text.size()) made += text[++at];
  }
  return made;
}

}  // namespace gantry
