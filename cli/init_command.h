// `gantry init NAME [--family FAMILY]`: creates a training project that builds against the installed Gantry.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gantry::cli {

// A file of cli/init/template, cli/init/family or cli/init/samples. CMake compiles the texts into the front program.
struct TemplateFile {
  std::string name;
  std::string text;  // @NAME@ is the project's name, and @VERSION@ is Gantry's major.minor
};
const std::vector<TemplateFile>& project_template();
// The files of a project for a known model family. @FAMILY@ is the name of the family, and @KEYS@ are the keys of a
// small model.
const std::vector<TemplateFile>& family_template();
// The files of a project for a family that does not read plain text (init_samples.h). @DATA@ are further keys of the
// data section. The project contains one of the drawn_* files, for its family, under the name drawn_samples.h.
const std::vector<TemplateFile>& samples_template();

void add_init_command(CLI::App& app);

}  // namespace gantry::cli
