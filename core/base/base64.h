// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gantry {

std::string encode_base64(std::string_view bytes);

// Returns nothing if another character precedes the padding.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace gantry
