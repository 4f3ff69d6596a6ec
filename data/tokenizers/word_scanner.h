// Functions that find the matches of the most frequent patterns without a regular expression engine: those of GPT-2, of
// Llama 3 (also cl100k, Phi-4 and others) and of Qwen2. Tests compare them with Oniguruma on random text.
#pragma once

#include <functional>
#include <string_view>

namespace gantry {

// Passes the parts of a valid UTF-8 text to `visit` in order. All parts are matches, because these patterns match
// everywhere.
using WordScanner = void (*)(std::string_view text, const std::function<void(std::string_view, bool)>& visit);

// The function for a pattern. Null for a pattern that has none.
WordScanner word_scanner_of(std::string_view pattern);

}  // namespace gantry
