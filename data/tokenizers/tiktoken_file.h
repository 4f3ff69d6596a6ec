// tiktoken's files of ranks: a line for each token, with its bytes in base64 and its rank, which is also its id.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

// True if the file is named *.tiktoken, or if its first line has two fields and the second one is a number. Other
// *.model files are SentencePiece's, which are binary.
bool is_tiktoken_file(const std::filesystem::path& path);

// Returns the bytes of each token, by rank. Throws InputError with the line for a damaged line, a rank or a token that
// is in two lines, and a gap between the ranks. Throws InputError for a byte that is not a token.
std::vector<std::string> read_tiktoken_file(const std::filesystem::path& path);

// Returns a pattern of the Rust crate fancy-regex, which tiktoken uses, in Oniguruma's syntax. `place` is for messages.
// Throws InputError for syntax that Oniguruma reads differently.
std::string oniguruma_pattern(std::string_view pattern, const std::string& place);

}  // namespace gantry
