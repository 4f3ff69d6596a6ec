// Warnings of the commands.
#pragma once

#include <string>

namespace gantry::cli {

// Warns that a newer checkpoint is ignored. `fault` is the reason.
void warn_of_passed_over(const std::string& fault);

}  // namespace gantry::cli
