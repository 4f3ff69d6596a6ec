// The program `gantry`. It runs the commands that need no LibTorch itself, so that they start at once, and starts the
// engine for the others.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <vector>

#include "gantry/cli/checkpoint_command.h"
#include "gantry/cli/commands.h"
#include "gantry/cli/completion_command.h"
#include "gantry/cli/config_command.h"
#include "gantry/cli/data_command.h"
#include "gantry/cli/doctor_command.h"
#include "gantry/cli/engine_exec.h"
#include "gantry/cli/generate_command.h"
#include "gantry/cli/init_command.h"
#include "gantry/cli/launch_command.h"
#include "gantry/cli/models_command.h"
#include "gantry/cli/plan_command.h"
#include "gantry/cli/report_command.h"
#include "gantry/cli/schedule_command.h"
#include "gantry/cli/usage.h"
#include "gantry/cli/version_text.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/core/io/paths.h"
#include "gantry/launch/supervisor/rank_shim.h"
#include "gantry/launch/supervisor/rank_starter.h"
#include "gantry/planner/config.h"

namespace {

using namespace gantry;

struct Arguments {
  cli::TrainArguments train;
  cli::ForwardArguments forward;
  cli::CompareArguments compare;
  cli::GenerateArguments generate, chat;
  cli::CheckpointArguments checkpoint;
  cli::PlanMeasureArguments measure;
  cli::DataShowArguments show;
  int exit_code = 0;
};

void add_commands(CLI::App& app, Arguments& arguments, char** argv) {
  const auto hand_on = [argv] { cli::run_engine(argv); };
  cli::add_train_command(app, arguments.train)->callback(hand_on);
  cli::add_launch_command(app, arguments.exit_code);
  cli::add_forward_command(app, arguments.forward)->callback(hand_on);
  cli::add_compare_command(app, arguments.compare)->callback(hand_on);
  cli::add_generate_command(app, arguments.generate)->callback(hand_on);
  cli::add_chat_command(app, arguments.chat)->callback(hand_on);
  cli::add_checkpoint_readers(
      *cli::add_checkpoint_command(app, arguments.checkpoint, {hand_on, hand_on, hand_on, hand_on, hand_on}), hand_on);
  cli::add_schedule_command(app);
  cli::add_data_command(app, arguments.show, hand_on);
  cli::add_init_command(app);
  cli::add_completion_command(app);
  cli::add_report_command(app);
  const auto hand_own_families_on = [argv](const std::string& config, const std::vector<std::string>& sets) {
    const auto libraries = planner::stated_libraries(config, sets);
    // A configuration may be written before its libraries are built.
    const bool are_there = std::ranges::all_of(libraries, [](const std::string& path) { return path_exists(path); });
    if (!libraries.empty() && are_there) cli::run_engine(argv);
  };
  cli::add_plan_command(app, arguments.measure, hand_on, hand_own_families_on);
  cli::add_config_command(app, hand_own_families_on);
  cli::add_models_command(app, arguments.exit_code);
  cli::add_doctor_command(app);
}

int run(CLI::App& app, const Arguments& arguments, int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string(launcher::kRankShimCommand)) {
    if (argc > 2 && argv[2] == std::string(launcher::kVariablesFromStdin)) launcher::read_variables();
    return launcher::run_rank_shim();
  }
  if (argc > 2 && argv[1] == std::string(launcher::kRankStarterCommand))
    return launcher::run_rank_starter({argv + 2, argv + argc});
  if (argc > 1 && std::string(argv[1]) == "help") {
    print_output(cli::help_of(app, std::vector<std::string>(argv + 2, argv + argc)));
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // help or the version was requested
    if (const auto unknown = cli::unknown_word(app)) throw UsageError(*unknown);
    std::ostringstream answer;
    app.exit(asked, answer);
    print_output(answer.str());
  } catch (const CLI::ParseError& error) {
    throw UsageError(cli::usage_line(app, error));
  }
  return arguments.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Gantry trains transformer models in C++ over tensor, pipeline, context, data and expert parallel ranks.",
      "gantry");
  app.set_version_flag("--version", cli::version_text());
  app.require_subcommand(1);
  Arguments arguments;
  add_commands(app, arguments, argv);
  try {
    return run(app, arguments, argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return InternalError::kExitCode;
  }
}
