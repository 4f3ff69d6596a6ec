#include "gantry/core/base/number_text.h"

#include <fmt/format.h>

namespace gantry {

std::string quantity(std::int64_t number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string bytes_text(double bytes) {
  const char* unit = "B";
  constexpr double kFourDigits = 999.5;  // from here on, three digits round to 1000
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < kFourDigits) break;
    bytes /= 1024;
    unit = larger;
  }
  return bytes < kFourDigits ? fmt::format("{:.3g} {}", bytes, unit) : fmt::format("{:.0f} {}", bytes, unit);
}

}  // namespace gantry
