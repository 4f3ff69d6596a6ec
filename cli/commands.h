// The flags of the commands that need LibTorch, declared once: the front end answers their help, the engine runs them.
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
  std::string cluster;  // a name or a file; empty: nothing is planned and predicted
  std::optional<StatusPlace> status;
};

struct ForwardArguments {
  std::string model, batch, output, grads;
  std::string adapter;  // a directory of PEFT's; empty: none
  std::vector<std::string> sets;
};

struct CompareArguments {
  std::string config;
  std::vector<std::string> sets;
  std::vector<std::string> layouts;  // empty: the configuration's own
  double tolerance = 1e-10;
  bool json = false;
};

struct PlanMeasureArguments {
  std::string output;        // empty: it is printed
  std::optional<int> ranks;  // empty: the launcher's, or a rank a core, at most 8
};

struct CheckpointExportArguments {
  std::string checkpoint, output;
  std::string dtype;                   // empty: as stored
  std::vector<std::string> libraries;  // in place of those that the checkpoint's configuration names
  double most_shard_gb = 5;
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
  std::string model;  // the base; empty: the one that the run or the adapter names
  std::string dtype;  // empty: the base's own
  std::vector<std::string> libraries;
  double most_shard_gb = 5;
  bool json = false;
};

struct CheckpointUpcycleArguments {
  std::string dense, output;
  std::int64_t experts = 0, used = 0, granularity = 1;
  std::uint64_t seed = 1;
  std::string dtype;  // empty: as stored
  double most_shard_gb = 5;
  bool json = false;
};

struct CheckpointDiffArguments {
  std::string a, b;
  std::vector<std::string> libraries;  // in place of those that the checkpoint's configuration names
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

// What each of them calls.
struct CheckpointCallbacks {
  std::function<void()> run_export, run_import, run_reshard, run_merge, run_upcycle;
};

CLI::App* add_train_command(CLI::App& app, TrainArguments& arguments);
CLI::App* add_forward_command(CLI::App& app, ForwardArguments& arguments);
CLI::App* add_compare_command(CLI::App& app, CompareArguments& arguments);
// Below `plan`.
void add_measure_command(CLI::App& plan, PlanMeasureArguments& arguments, const std::function<void()>& run_measure);
void add_diff_command(CLI::App& checkpoint, CheckpointDiffArguments& arguments, const std::function<void()>& run_diff);
CLI::App* add_checkpoint_command(CLI::App& app, CheckpointArguments& arguments, const CheckpointCallbacks& callbacks);

void add_sets(CLI::App& command, std::vector<std::string>& sets);

}  // namespace gantry::cli
