#include "gantry/core/io/readable_file.h"

#include <filesystem>
#include <system_error>

namespace gantry {

std::ifstream open_for_reading(const std::string& path) {
  std::ifstream file;
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    file.setstate(std::ios::failbit);
  else
    file.open(path, std::ios::binary);
  return file;
}

}  // namespace gantry
