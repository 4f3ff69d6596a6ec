// Warnings of the commands.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

// Warns that a newer checkpoint is ignored. `fault` is the reason.
void warn_of_passed_over(const std::string& fault);

// Warns of parameters that are not in the files and therefore have random initial weights. Does nothing for none.
void warn_of_new_weights(const std::vector<std::string>& names);

}  // namespace gantry::cli
