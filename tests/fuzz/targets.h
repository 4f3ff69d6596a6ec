// The readers of files that may be hostile, one function each: bytes in, and nothing else than the errors they promise.
#pragma once

#include <span>
#include <string_view>

namespace gantry::fuzz {

struct Target {
  const char* name;  // also that of its corpus
  // Reads the bytes as that kind of file. Refusals of the kind that the reader promises are the reader's right; any
  // other exception, or a result that is not what it should be, comes out. True where the bytes were accepted.
  bool (*run)(std::string_view bytes);
};

std::span<const Target> targets();

}  // namespace gantry::fuzz
