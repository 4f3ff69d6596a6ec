// The output of `gantry --version`.
#pragma once

#include <string>

namespace gantry::cli {

// Returns the version on the first line, then one line for each property of the build.
std::string version_text();

}  // namespace gantry::cli
