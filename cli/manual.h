// The manual page gantry(1), generated from the definitions of the commands.
#pragma once

#include <string>
#include <vector>

#include "gantry/cli/command_tree.h"

namespace gantry::cli {

std::string manual_page(const std::vector<CommandEntry>& commands);  // in the macros of man(7)

}  // namespace gantry::cli
