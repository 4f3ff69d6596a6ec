#include "gantry/trainer/report/checksums.h"

#include <array>

namespace gantry {
namespace {

using Crc32Table = std::array<std::uint32_t, 256>;

// `polynomial` with its bits reversed.
constexpr Crc32Table crc32_table(std::uint32_t polynomial) {
  Crc32Table table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? polynomial : 0);
    table[i] = value;
  }
  return table;
}

constexpr Crc32Table kCastagnoli = crc32_table(0x82f63b78), kIeee = crc32_table(0xedb88320);

std::uint32_t crc32_of(const Crc32Table& table, std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 255];
  return ~crc;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) { return crc32_of(kCastagnoli, bytes); }
std::uint32_t crc32_ieee(std::string_view bytes) { return crc32_of(kIeee, bytes); }

}  // namespace gantry
