// Files that users name, opened for reading.
#pragma once

#include <fstream>
#include <string>

namespace gantry {

// Opens a file, a pipe or a device. The stream has failed if the path cannot be opened or is a directory, whose
// contents std::ifstream would report by an exception of its own or as an empty file.
std::ifstream open_for_reading(const std::string& path);

}  // namespace gantry
