// Errors of the command line as one line, with the most similar valid word.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "gantry/core/error.h"

namespace gantry::cli {

// Returns an error for the first word that is neither a command nor a flag, of the innermost command that was parsed;
// empty: there is no such word.
std::optional<ErrorText> unknown_word(const CLI::App& app);

// Returns the error line for `error`, of the innermost command that was parsed.
std::string usage_line(const CLI::App& app, const CLI::ParseError& error);

// Returns the help of the command at `path` ("schedule", "draw"); empty: of the program. Throws UsageError for an
// unknown word.
std::string help_of(const CLI::App& app, const std::vector<std::string>& path);

}  // namespace gantry::cli
