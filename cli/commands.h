// The flags of the commands that need LibTorch, declared once: the front end answers their help, the engine runs them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace gantry::cli {

struct TrainArguments {
  std::string config;
  std::vector<std::string> sets;
  std::string sample;  // a prompt to continue at the end
};

struct ForwardArguments {
  std::string model, batch, output, grads;
  std::vector<std::string> sets;
};

struct CheckpointExportArguments {
  std::string checkpoint, output;
};

CLI::App* add_train_command(CLI::App& app, TrainArguments& arguments);
CLI::App* add_forward_command(CLI::App& app, ForwardArguments& arguments);
CLI::App* add_checkpoint_command(CLI::App& app, CheckpointExportArguments& export_arguments,
                                 std::function<void()> run_export);

void add_sets(CLI::App& command, std::vector<std::string>& sets);

}  // namespace gantry::cli
