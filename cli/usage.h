// A wrong command line as one line that names the nearest right word.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "gantry/core/error.h"

namespace gantry::cli {

// The first word of the command line that no command or flag has the name of, by the innermost command that was
// reached.
std::optional<ErrorText> unknown_word(const CLI::App& app);

// What `error` means, said of the innermost command that was reached.
std::string usage_line(const CLI::App& app, const CLI::ParseError& error);

// The help of the command at `path` ("schedule", "draw"), the program's own for an empty one. UsageError for an unknown
// word.
std::string help_of(const CLI::App& app, const std::vector<std::string>& path);

}  // namespace gantry::cli
