// The manual page gantry(1), made of the commands' own definitions.
#pragma once

#include <string>
#include <vector>

#include "gantry/cli/command_tree.h"

namespace gantry::cli {

std::string manual_page(const std::vector<CommandEntry>& commands);  // in man's macros

}  // namespace gantry::cli
