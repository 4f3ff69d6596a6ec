// Checks of numbers on the command line without an upper limit. The errors of CLI11's own checks name the largest
// double.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace gantry::cli {

inline CLI::Validator at_least_zero() {
  return {[](std::string& text) {
            double value = 0;
            const bool is_sound = CLI::detail::lexical_cast(text, value) && value >= 0;
            return is_sound ? std::string() : "the value is " + text + "; expected a number from 0 on";
          },
          "NONNEGATIVE"};
}

inline CLI::Validator above_zero() {
  return {[](std::string& text) {
            double value = 0;
            const bool is_sound = CLI::detail::lexical_cast(text, value) && value > 0;
            return is_sound ? std::string() : "the value is " + text + "; expected a number above 0";
          },
          "POSITIVE"};
}

}  // namespace gantry::cli
