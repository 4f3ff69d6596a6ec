#include "gantry/core/config/byte_size.h"

#include <algorithm>
#include <string_view>

#include "gantry/core/config/config_reader.h"

namespace gantry {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

// From the largest unit to the smallest one.
constexpr Unit kBinary[] = {{"TiB", std::int64_t{1} << 40},
                            {"GiB", std::int64_t{1} << 30},
                            {"MiB", std::int64_t{1} << 20},
                            {"KiB", std::int64_t{1} << 10},
                            {"B", 1}};
constexpr Unit kDecimal[] = {{"TB", 1'000'000'000'000}, {"GB", 1'000'000'000}, {"MB", 1'000'000}, {"kB", 1'000}};

constexpr double kMostBytes = 1e18;

}  // namespace

std::optional<std::int64_t> parse_byte_size(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = std::string_view(text).substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto number = parse_number(text.substr(0, digits));
  if (!number) return std::nullopt;
  const auto times = [&](const Unit& known) -> std::optional<std::int64_t> {
    const double bytes = *number * static_cast<double>(known.bytes);
    if (bytes < 1 || bytes > kMostBytes) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  };
  for (const Unit& known : kBinary)
    if (known.name == unit) return times(known);
  for (const Unit& known : kDecimal)
    if (known.name == unit) return times(known);
  return std::nullopt;
}

std::string byte_size_text(std::int64_t bytes) {
  for (const Unit& unit : kBinary)
    if (bytes % unit.bytes == 0) return std::to_string(bytes / unit.bytes) + " " + std::string(unit.name);
  return std::to_string(bytes) + " B";
}

}  // namespace gantry
