#include "gantry/cli/report_command.h"

#include <memory>

#include "gantry/core/io/output.h"
#include "gantry/trainer/report/run_reader.h"

namespace gantry::cli {

void add_report_command(CLI::App& app) {
  struct Arguments {
    std::string folder, output;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* report = app.add_subcommand("report", "Write the report of a run as one HTML file");
  report->add_option("folder", arguments->folder, "The `output` directory of a run, which may still be running")
      ->required();
  report->add_option("--output", arguments->output, "The file to write; default: report.html in that directory")
      ->type_name("FILE");
  report->callback(
      [arguments] { print_output("report: " + write_report(arguments->folder, arguments->output) + "\n"); });
}

}  // namespace gantry::cli
