// Fuzz targets: one function for each reader of untrusted files. A reader may only throw its documented
// errors.
#pragma once

#include <span>
#include <string_view>

namespace gantry::fuzz {

struct Target {
  const char* name;  // also the name of its corpus
  // Reads the bytes as a file of this kind. Returns true if the reader accepts them, and false if it throws
  // its documented error. Throws any other exception of the reader, or std::logic_error if the result is
  // wrong.
  bool (*run)(std::string_view bytes);
};

std::span<const Target> targets();

}  // namespace gantry::fuzz
