// The engine: runs the commands that need LibTorch. bin/gantry starts it. It parses the same flags with the same code.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "gantry/cli/config_command.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/own_families.h"
#include "gantry/cli/plan_command.h"
#include "gantry/core/host/process_end.h"
#include "gantry/tensors/exceptions.h"

int main(int argc, char** argv) {
  using namespace gantry;
  skip_library_destructors();
  CLI::App app("Gantry's engine, which `gantry` starts", "gantry");
  app.require_subcommand(1);
  int exit_code = 0;
  cli::TrainArguments train;
  cli::ForwardArguments forward;
  cli::CompareArguments compare;
  cli::GenerateArguments generate;
  cli::CheckpointArguments checkpoint;
  cli::add_train_command(app, train)->callback([&] { exit_code = cli::run_train(train); });
  cli::add_forward_command(app, forward)->callback([&] { exit_code = cli::run_forward(forward); });
  cli::add_compare_command(app, compare)->callback([&] { exit_code = cli::run_compare(compare); });
  cli::add_generate_command(app, generate)->callback([&] { exit_code = cli::run_generate(generate); });
  cli::GenerateArguments chat;
  cli::add_chat_command(app, chat)->callback([&] { exit_code = cli::run_chat(chat); });
  cli::CheckpointDiffArguments diff;
  auto* commands = cli::add_checkpoint_command(
      app, checkpoint,
      {.run_export = [&] { exit_code = cli::run_checkpoint_export(checkpoint.exported); },
       .run_import = [&] { exit_code = cli::run_checkpoint_import(checkpoint.imported); },
       .run_reshard = [&] { exit_code = cli::run_checkpoint_reshard(checkpoint.resharded); },
       .run_merge = [&] { exit_code = cli::run_checkpoint_merge(checkpoint.merged); },
       .run_upcycle = [&] { exit_code = cli::run_checkpoint_upcycle(checkpoint.upcycled); }});
  cli::add_diff_command(*commands, diff, [&] { exit_code = cli::run_checkpoint_diff(diff); });
  cli::DataShowArguments show;
  cli::add_show_command(*app.add_subcommand("data", "The command of data that needs LibTorch")->require_subcommand(1),
                        show, [&] { exit_code = cli::run_data_show(show); });
  cli::PlanMeasureArguments measure;
  cli::add_plan_command(
      app, measure, [&] { exit_code = cli::run_plan_measure(measure); }, cli::outline_own_families);
  cli::add_config_command(app, cli::outline_own_families);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    std::fprintf(stderr, "error: %s\n", failure.line.c_str());
    return failure.exit_code;
  }
  return exit_code;
}
