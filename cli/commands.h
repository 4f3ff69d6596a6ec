// The flags of the commands that need LibTorch. They are declared once: the front program prints their help, and the
// engine runs the commands.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gantry/trainer/status/status_access.h"

namespace gantry::cli {

struct TrainArguments {
  std::string config;
  std::vector<std::string> sets;
  std::string sample;   // a prompt to continue at the end
  std::string cluster;  // a name or a file; empty: no planning and no predictions
  std::optional<StatusPlace> status;
};

struct ForwardArguments {
  std::string model, batch, output, grads;
  std::string adapter;  // a PEFT directory; empty: none
  std::vector<std::string> sets;
};

struct DataShowArguments {
  std::string source, model, tokenizer;
  std::vector<std::string> sets;
  bool json = false;
};

struct CompareArguments {
  std::string config;
  std::vector<std::string> sets;
  std::vector<std::string> layouts;  // empty: the layout of the configuration
  double tolerance = 1e-10;
  bool json = false;
};

struct PlanMeasureArguments {
  std::string output;        // empty: standard output
  std::optional<int> ranks;  // empty: the number of the launcher, or one rank per core, at most 8
};

struct CheckpointExportArguments {
  std::string checkpoint, output;
  std::string dtype;                   // empty: the stored type
  std::vector<std::string> libraries;  // instead of the libraries in the configuration of the checkpoint
  double most_shard_gb = 5;
  std::string quantize;  // empty: unquantized weights
  bool quantize_double = false;
  bool ema = false;  // the averaged weights
  bool json = false;
};

struct CheckpointImportArguments {
  std::string model, output;
  std::vector<std::string> sets;
  bool json = false;
};

struct CheckpointReshardArguments {
  std::string checkpoint, output;
  std::vector<std::string> sets;
  bool json = false;
};

struct CheckpointMergeArguments {
  std::string checkpoint, output;
  std::string model;  // the base model; empty: the one that the run or the adapter names
  std::string dtype;  // empty: the type in the base model
  std::vector<std::string> libraries;
  std::string quantize;  // empty: unquantized weights
  bool quantize_double = false;
  double most_shard_gb = 5;
  bool json = false;
};

struct CheckpointUpcycleArguments {
  std::string dense, output;
  std::int64_t experts = 0, used = 0, granularity = 1;
  std::uint64_t seed = 1;
  std::string dtype;  // empty: the stored type
  double most_shard_gb = 5;
  bool json = false;
};

struct CheckpointDiffArguments {
  std::string a, b;
  std::vector<std::string> libraries;  // instead of the libraries in the configuration of the checkpoint
  std::size_t most = 20;
  bool json = false;
};

struct CheckpointArguments {
  CheckpointExportArguments exported;
  CheckpointImportArguments imported;
  CheckpointReshardArguments resharded;
  CheckpointMergeArguments merged;
  CheckpointUpcycleArguments upcycled;
};

// The function that each command calls.
struct CheckpointCallbacks {
  std::function<void()> run_export, run_import, run_reshard, run_merge, run_upcycle;
};

CLI::App* add_train_command(CLI::App& app, TrainArguments& arguments);
CLI::App* add_forward_command(CLI::App& app, ForwardArguments& arguments);
CLI::App* add_compare_command(CLI::App& app, CompareArguments& arguments);
// Adds a subcommand of `plan`.
void add_show_command(CLI::App& data, DataShowArguments& arguments, const std::function<void()>& run_show);
void add_measure_command(CLI::App& plan, PlanMeasureArguments& arguments, const std::function<void()>& run_measure);
void add_diff_command(CLI::App& checkpoint, CheckpointDiffArguments& arguments, const std::function<void()>& run_diff);
CLI::App* add_checkpoint_command(CLI::App& app, CheckpointArguments& arguments, const CheckpointCallbacks& callbacks);

void add_sets(CLI::App& command, std::vector<std::string>& sets);

}  // namespace gantry::cli
