// Cyclic redundancy checks of 32 bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace gantry {

// Castagnoli's polynomial, as in iSCSI.
std::uint32_t crc32c(std::string_view bytes);
// The polynomial of IEEE 802.3, as in zlib.
std::uint32_t crc32_ieee(std::string_view bytes);

}  // namespace gantry
