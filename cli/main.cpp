// The program `gantry`: answers what needs no LibTorch itself, so that help comes at once, and hands the rest to the
// engine.
#include <cstdio>
#include <exception>
#include <sstream>
#include <vector>

#include "gantry/cli/checkpoint_command.h"
#include "gantry/cli/commands.h"
#include "gantry/cli/config_command.h"
#include "gantry/cli/data_command.h"
#include "gantry/cli/engine_exec.h"
#include "gantry/cli/output.h"
#include "gantry/cli/report_command.h"
#include "gantry/cli/schedule_command.h"
#include "gantry/cli/usage.h"
#include "gantry/core/error.h"
#include "gantry/core/version.h"

namespace {

using namespace gantry;

struct Arguments {
  cli::TrainArguments train;
  cli::ForwardArguments forward;
  cli::CheckpointArguments checkpoint;
  std::string config;
  std::vector<std::string> sets;
  bool json = false;
};

void add_commands(CLI::App& app, Arguments& arguments, char** argv) {
  const auto hand_on = [argv] { cli::run_engine(argv); };
  cli::add_train_command(app, arguments.train)->callback(hand_on);
  cli::add_forward_command(app, arguments.forward)->callback(hand_on);
  cli::add_checkpoint_readers(*cli::add_checkpoint_command(app, arguments.checkpoint, {hand_on, hand_on, hand_on}));
  cli::add_schedule_command(app);
  cli::add_data_command(app);
  cli::add_report_command(app);
  auto* config = app.add_subcommand("config", "Show the resolved configuration, its mesh, stages and derived values");
  config->add_option("config", arguments.config, "The configuration, a YAML file")->required();
  cli::add_sets(*config, arguments.sets);
  config->add_flag("--json", arguments.json, "As JSON");
  config->callback([&arguments] { cli::show_config(arguments.config, arguments.sets, arguments.json); });
  app.add_subcommand("doctor", "Show what this build and machine can do")->callback([] { cli::show_doctor(); });
}

void run(CLI::App& app, int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "help")
    return cli::print_output(cli::help_of(app, std::vector<std::string>(argv + 2, argv + argc)));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // for help or the version
    std::ostringstream answer;
    app.exit(asked, answer);
    cli::print_output(answer.str());
  } catch (const CLI::ParseError& error) {
    throw UsageError(cli::usage_line(app, error));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Gantry trains transformer models in C++ over tensor, pipeline and data parallel ranks.", "gantry");
  app.set_version_flag("--version", std::string("gantry ") + GANTRY_VERSION);
  app.require_subcommand(1);
  Arguments arguments;
  add_commands(app, arguments, argv);
  try {
    run(app, argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return InternalError::kExitCode;
  }
  return 0;
}
