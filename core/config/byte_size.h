// Sizes of memory with a unit, as in configurations: "20 GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gantry {

// Parses a number above 0 and a unit (B, kB, MB, GB, TB, KiB, MiB, GiB or TiB); fractions of bytes are dropped. Returns
// nothing for any other text.
std::optional<std::int64_t> parse_byte_size(const std::string& text);

// Formats the size in the largest binary unit that divides it, so that parse_byte_size() can read it.
std::string byte_size_text(std::int64_t bytes);

}  // namespace gantry
