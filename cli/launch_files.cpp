#include "gantry/cli/launch_files.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/unrelated.h"
#include "gantry/cli/commands.h"
#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/planner/config.h"

namespace gantry::cli {
namespace {

bool is_gantry_train(const std::vector<std::string>& program) {
  return program.size() > 1 && std::filesystem::path(program[0]).filename() == "gantry" && program[1] == "train";
}

Config config_of(const std::vector<std::string>& program) {
  CLI::App app;
  TrainArguments arguments;
  add_train_command(app, arguments);
  std::vector<std::string> reversed(program.rbegin(), program.rend() - 1);
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw UsageError({"gantry train", error.what(), "", "see gantry train --help"});
  }
  // Keys with the value auto do not affect the files of the run.
  if (!planner::auto_keys(arguments.config, arguments.sets).empty())
    return planner::configured(arguments.config, arguments.sets, {});
  return Config::load(arguments.config, arguments.sets);
}

std::optional<std::int64_t> last_step_of_metrics(const std::string& path) {
  std::ifstream file(path);
  std::optional<std::int64_t> step;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object() && parsed.contains("step") && parsed["step"].is_number_integer())
      step = parsed["step"].get<std::int64_t>();
  }
  return step;
}

}  // namespace

RunFiles run_files(const std::vector<std::string>& program, const std::string& checkpoints) {
  if (!is_gantry_train(program)) return {checkpoints, ""};
  const Config config = config_of(program);
  return {config.checkpoint.path, config.output};
}

RunFiles find_run_files(const std::vector<std::string>& program, const std::string& checkpoints) {
  if (is_gantry_train(program)) {
    const Config config = config_of(program);
    refuse_foreign_checkpoint(config.checkpoint.path, config.checkpoint.resume);
  }
  return run_files(program, checkpoints);
}

std::string newest_checkpoint(const RunFiles& files) {
  if (files.checkpoints.empty()) return "";
  return find_newest_checkpoint(files.checkpoints).folder.value_or("");
}

std::optional<std::int64_t> last_step(const RunFiles& files) {
  if (!files.output.empty())
    if (const auto step = last_step_of_metrics(files.output + "/metrics.jsonl")) return step;
  const std::string newest = newest_checkpoint(files);
  if (newest.empty()) return std::nullopt;
  return step_of_folder_name(std::filesystem::path(newest).filename().string());
}

}  // namespace gantry::cli
