// `gantry init NAME [--family FAMILY]`: a project of the user's own that builds against the installed Gantry and
// trains.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gantry::cli {

// A file of cli/init/template or cli/init/family; CMake compiles their texts into the front program.
struct TemplateFile {
  std::string name;
  std::string text;  // @NAME@ and @VERSION@ stand for the project's name and Gantry's major.minor
};
const std::vector<TemplateFile>& project_template();
// What a project that trains a model of a known family has in place of a model of its own: @FAMILY@ is its name, @KEYS@
// are the keys of a small one.
const std::vector<TemplateFile>& family_template();
// And one whose family does not read plain text (init_samples.h): @DATA@ stands for further keys of the data. Of the
// files named drawn_* a project has its family's, as drawn_samples.h.
const std::vector<TemplateFile>& samples_template();

void add_init_command(CLI::App& app);

}  // namespace gantry::cli
