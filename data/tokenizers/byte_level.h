// GPT-2's spelling of bytes as printable characters, in which byte-level vocabularies are written: ' ' is 'Ġ' (U+0120).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace gantry {

// spellings()[b] is the character of byte b, in UTF-8.
const std::array<std::string, 256>& byte_spellings();

// The spelling of bytes.
std::string spelling_of(std::string_view bytes);

// Returns the bytes that a token spells; the UTF-8 of the token if it has a character that does not spell a
// byte.
std::string bytes_of_token(std::string_view token);
// Returns the bytes that a token spells; nothing if it has a character that does not spell a byte.
std::optional<std::string> spelled_bytes(std::string_view token);

}  // namespace gantry
