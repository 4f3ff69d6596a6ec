// The program `gantry`: answers what needs no LibTorch itself, so that help comes at once, and hands the rest to the
// engine.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "gantry/cli/commands.h"
#include "gantry/cli/config_command.h"
#include "gantry/cli/engine_exec.h"
#include "gantry/cli/schedule_command.h"
#include "gantry/core/error.h"

namespace {

using namespace gantry;

struct Arguments {
  cli::TrainArguments train;
  cli::ForwardArguments forward;
  cli::CheckpointExportArguments checkpoint_export;
  std::string config;
  std::vector<std::string> sets;
};

void add_commands(CLI::App& app, Arguments& arguments, char** argv) {
  const auto hand_on = [argv] { cli::run_engine(argv); };
  cli::add_train_command(app, arguments.train)->callback(hand_on);
  cli::add_forward_command(app, arguments.forward)->callback(hand_on);
  cli::add_checkpoint_command(app, arguments.checkpoint_export, hand_on);
  cli::add_schedule_command(app);
  auto* config = app.add_subcommand("config", "Show the resolved configuration, its mesh, stages and derived values");
  config->add_option("config", arguments.config, "The configuration, a YAML file")->required();
  cli::add_sets(*config, arguments.sets);
  config->callback([&arguments] { cli::show_config(arguments.config, arguments.sets); });
  app.add_subcommand("doctor", "Show what this build and machine can do")->callback([] { cli::show_doctor(); });
}

// `gantry help COMMAND`, or the whole program's help.
int show_help(const CLI::App& app, const std::string& command) {
  const auto commands = app.get_subcommands([&](const CLI::App* known) { return known->get_name() == command; });
  if (commands.empty() && !command.empty())
    throw UsageError({"gantry help", "'" + command + "' is no command", "one of those that gantry --help lists", ""});
  std::fputs((commands.empty() ? &app : commands.front())->help().c_str(), stdout);
  return 0;
}

// CLI11's message as one line; an unknown command gets the nearest one.
std::string usage_line(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (argc > 1 && argv[1][0] != '-' && std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    const std::string near = nearest_name(std::string(argv[1]), names);
    std::string known;
    for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
    return format_error({"gantry", "'" + std::string(argv[1]) + "' is no command", "one of " + known,
                         near.empty() ? "see gantry --help" : "did you mean '" + near + "'?"});
  }
  return format_error({argc > 1 ? "gantry " + std::string(argv[1]) : "gantry", error.what(), "", "see gantry --help"});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Gantry trains transformer models in C++ over tensor, pipeline and data parallel ranks.", "gantry");
  app.set_version_flag("--version", std::string("gantry ") + GANTRY_VERSION);
  app.require_subcommand(1);
  Arguments arguments;
  add_commands(app, arguments, argv);
  try {
    if (argc > 1 && std::string(argv[1]) == "help") return show_help(app, argc > 2 ? argv[2] : "");
    app.parse(argc, argv);
  } catch (const CLI::Success& answered) {
    return app.exit(answered);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "error: %s\n", usage_line(app, error, argc, argv).c_str());
    return UsageError::kExitCode;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return InternalError::kExitCode;
  }
  return 0;
}
