#include "gantry/cli/schedule_command.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/cli/recompute_text.h"
#include "gantry/cli/schedule_options.h"
#include "gantry/cli/schedule_source.h"
#include "gantry/cli/schedule_times.h"
#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/output.h"
#include "gantry/schedule/extra_actions.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"

namespace gantry::cli {
namespace {

using schedule::Schedule;

std::string describe_sizes(const Schedule& of) {
  return fmt::format("{}: {} ranks, {} stages, {} microbatches", of.name, of.ranks(), of.stages(), of.microbatches);
}

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

std::string recompute_text(const ScheduleOptions& options) {
  const auto& of = options.configured;
  return of && of->recompute ? cli::to_text(*of->recompute, of->layers) : "";
}

void run_show(const ScheduleOptions& options) {
  Schedule shown = valid_schedule(options);
  shown = options.lowered ? schedule::lower(shown) : shown;
  // PyTorch's compute-only form has no messages. --lowered adds them.
  if (options.csv && !options.lowered) shown = schedule::without_messages(shown);
  if (options.csv) return print_output(schedule::to_csv(shown));
  std::string text = describe_sizes(shown) + "\n";
  for (int rank = 0; rank < shown.ranks(); ++rank) {
    text += fmt::format("rank {} (stage {}):", rank, list(shown.stages_of_rank[rank]));
    for (const auto& action : shown.actions[rank])
      text += " " + schedule::to_string(action) + (action.overlaps_next ? " +" : "");
    text += "\n";
  }
  print_output(text + recompute_text(options));
}

std::size_t count_messages(const Schedule& of) {
  std::size_t messages = 0;
  for (const auto& row : of.actions)
    for (const auto& action : row) messages += action.is_message() ? 1 : 0;
  return messages / 2;  // a send and a receive
}

std::size_t count_computations(const Schedule& of) {
  std::size_t computations = 0;
  for (const auto& row : of.actions)
    for (const auto& action : row) computations += action.is_compute() ? 1 : 0;
  return computations;
}

// Errors of a file are wrong input. Errors of a name, such as an unknown one or undefined sizes, are wrong
// configuration.
Schedule read_or_generate(const ScheduleOptions& options) {
  if (!is_schedule_csv(options.source)) return named_schedule(options);
  try {
    return named_schedule(options);
  } catch (const ConfigError& error) {
    throw InputError(error.what());
  }
}

void run_check(const ScheduleOptions& options) {
  const Schedule checked = read_or_generate(options);
  try {
    const Schedule lowered = schedule::lower(checked);  // also validates `checked`
    schedule::validate(lowered);
    if (options.json)
      return print_output(nlohmann::ordered_json{{"valid", true},
                                                 {"computations", count_computations(lowered)},
                                                 {"messages", count_messages(lowered)}}
                              .dump() +
                          "\n");
    print_output(
        fmt::format("{}: {} computations, each once and after the data it needs; {} messages, each sent and received; "
                    "no deadlock, even if every send waits for its receive\n",
                    describe_sizes(lowered), count_computations(lowered), count_messages(lowered)));
  } catch (const ConfigError& error) {
    throw InputError(error.what());
  }
}

schedule::Simulation simulate(const ScheduleOptions& options) {
  schedule::Costs costs = stated_times(options);
  const Schedule simulated = schedule::without_messages(valid_schedule(options));
  add_extra_times(costs, simulated, options);
  return schedule::simulate(simulated, costs);
}

void run_simulate(const ScheduleOptions& options) {
  const schedule::Simulation simulation = simulate(options);
  if (options.json) {
    nlohmann::ordered_json result = {{"makespan_global", simulation.makespan_global},
                                     {"makespan_max_rank", simulation.makespan_max_rank},
                                     {"bubble_rate", simulation.bubble_rate},
                                     {"peak_activations", simulation.peak_activations}};
    if (options.offload != "none") result["peak_memory"] = simulation.peak_memory;
    if (options.configured && options.configured->recompute)
      result["recompute"] = cli::to_json(*options.configured->recompute);
    return print_output(result.dump() + "\n");
  }
  print_output(fmt::format("makespan                    {:.6g}, first start to last end: with an optimizer barrier\n"
                           "makespan, longest rank      {:.6g}, start to end: without one\n"
                           "bubble of the longest rank  {:.2f}%\n"
                           "activations held at most    {}, by rank\n",
                           simulation.makespan_global, simulation.makespan_max_rank, 100 * simulation.bubble_rate,
                           list(simulation.peak_activations)) +
               (options.offload == "none"
                    ? ""
                    : fmt::format("memory held at most         {:.6g}, by rank, with the optimizer's state\n",
                                  fmt::join(simulation.peak_memory, " "))) +
               recompute_text(options));
}

void run_draw(const ScheduleOptions& options) {
  const schedule::Simulation simulation = simulate(options);
  std::string drawing;
  if (options.format == "text") drawing = schedule::draw_text(simulation);
  if (options.format == "svg") drawing = schedule::draw_svg(simulation, "Pipeline schedule " + options.source);
  if (options.format == "trace") drawing = schedule::draw_chrome_trace(simulation);
  if (options.output.empty()) return print_output(drawing);
  write_text_durably(options.output, drawing);
}

// The callback owns the options, so they live as long as the command.
std::pair<CLI::App*, ScheduleOptions*> add_subcommand(CLI::App& group, const std::string& name, const std::string& help,
                                                      void (*run)(const ScheduleOptions&)) {
  const auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = group.add_subcommand(name, help);
  add_schedule_source(*command, *options);
  command->callback([options, run] {
    take_config(*options);
    run(*options);
  });
  return {command, options.get()};
}

}  // namespace

void add_schedule_command(CLI::App& app) {
  CLI::App* group =
      app.add_subcommand("schedule", "Show, check, simulate and draw pipeline schedules, without a model");
  group->require_subcommand(1);
  const auto [show, show_options] = add_subcommand(*group, "show", "Print the actions of every rank", run_show);
  show->add_flag("--csv", show_options->csv, "Print PyTorch's CSV format");
  show->add_flag("--lowered", show_options->lowered, "Print sends and receives, too");
  add_times(*show, *show_options);
  add_gather(*show, *show_options);
  add_offload(*show, *show_options);
  const auto [check, check_options] =
      add_subcommand(*group, "check", "Prove that a schedule can run; exit code 4 if it cannot", run_check);
  add_times(*check, *check_options);
  check->add_flag("--json", check_options->json, "Print JSON");
  const auto [simulate, simulate_options] =
      add_subcommand(*group, "simulate", "Print makespan, bubble and peak memory", run_simulate);
  add_all_times(*simulate, *simulate_options);
  simulate->add_flag("--json", simulate_options->json, "Print JSON");
  const auto [draw, draw_options] = add_subcommand(*group, "draw", "Draw a timeline of every rank", run_draw);
  add_all_times(*draw, *draw_options);
  draw->add_option("--format", draw_options->format, "Output format; trace: a Chrome trace")
      ->check(CLI::IsMember({"text", "svg", "trace"}))
      ->capture_default_str();
  draw->add_option("--output", draw_options->output, "The file to write; default: standard output");
}

}  // namespace gantry::cli
