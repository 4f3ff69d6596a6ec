// Sizes of memory with their unit, as a configuration states them: "20 GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gantry {

// A number above 0 and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB; fractions of bytes are left out. Nothing for any
// other text.
std::optional<std::int64_t> parse_byte_size(const std::string& text);

// The same in its largest binary unit that divides it, as parse_byte_size() reads it.
std::string byte_size_text(std::int64_t bytes);

}  // namespace gantry
