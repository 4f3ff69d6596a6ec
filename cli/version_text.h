// What `gantry --version` prints.
#pragma once

#include <string>

namespace gantry::cli {

// The version on a line of its own, then what the build was made with, a line each.
std::string version_text();

}  // namespace gantry::cli
