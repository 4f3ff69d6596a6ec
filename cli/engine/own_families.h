// The families of a configuration's libraries, for the commands that describe models without training them.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

// Loads the libraries of the configuration, and registers an outline of each of their families (models/described/
// model_outline.h). Throws the errors of the configuration and of the libraries.
void outline_own_families(const std::string& path, const std::vector<std::string>& sets);

}  // namespace gantry::cli
