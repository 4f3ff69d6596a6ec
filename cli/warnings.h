// What commands warn of.
#pragma once

#include <string>

namespace gantry::cli {

// The warning of a newer checkpoint that is not taken, `fault` saying why.
void warn_of_passed_over(const std::string& fault);

}  // namespace gantry::cli
