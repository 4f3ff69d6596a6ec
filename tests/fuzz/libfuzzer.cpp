// One target as a libFuzzer program; GANTRY_FUZZ_TARGET names it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const auto& target : gantry::fuzz::targets())
    if (std::string_view(target.name) == GANTRY_FUZZ_TARGET) {
      target.run({reinterpret_cast<const char*>(data), size});
      return 0;
    }
  std::abort();
}
