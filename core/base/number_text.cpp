#include "gantry/core/base/number_text.h"

#include <fmt/format.h>

namespace gantry {

std::string quantity(std::int64_t number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string bytes_text(double bytes) {
  const char* unit = "B";
  for (const char* larger : {"KiB", "MiB", "GiB"}) {
    if (bytes < 1000) break;
    bytes /= 1024;
    unit = larger;
  }
  return fmt::format("{:.3g} {}", bytes, unit);
}

}  // namespace gantry
