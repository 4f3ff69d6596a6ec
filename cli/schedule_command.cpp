#include "gantry/cli/schedule_command.h"

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gantry/cli/recompute_text.h"
#include "gantry/cli/schedule_of_config.h"
#include "gantry/core/error.h"
#include "gantry/core/output.h"
#include "gantry/schedule/extra_actions.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/schedule/parameter_actions.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"

namespace gantry::cli {
namespace {

using schedule::Schedule;

// Sums of more than this would lose the digits of the smaller ones.
constexpr double kMaxTime = 1e15;

struct Options {
  std::string source;  // a schedule's name, a .csv file, or a configuration
  std::optional<int> ranks;
  std::optional<int> microbatches;
  std::optional<int> chunks;
  std::optional<double> memory_limit;
  std::optional<int> group_size;
  std::string times = "1,1,1,0";
  std::string stage_times;
  std::string gather;                // empty: parameters are not cut
  std::string gather_times = "1,1";  // of a gather and of a sum
  std::string offload = "none";
  double host_bandwidth = 0;  // 0: moves take no time
  double state = 0;           // the optimizer's, of a rank
  bool csv = false;
  bool lowered = false;
  bool json = false;
  std::string format = "text";
  std::string output;
  std::optional<ConfiguredStep> configured;  // of a configuration
};

bool is_file(const std::string& source) { return source.ends_with(".csv") || source.find('/') != std::string::npos; }

// A size given beside a file must be the file's own.
void require_same(const std::string& flag, const std::optional<int>& given, int in_file, const std::string& path) {
  if (given && *given != in_file)
    throw UsageError(
        {flag + " " + std::to_string(*given), path + " has " + std::to_string(in_file), "", "leave " + flag + " out"});
}

Schedule read_file(const Options& options) {
  Schedule read = schedule::load_csv(options.source);
  require_same("-p", options.ranks, read.ranks(), options.source);
  require_same("-m", options.microbatches, read.microbatches, options.source);
  const auto chunks = static_cast<int>(read.stages_of_rank.front().size());
  require_same("-v", options.chunks, chunks, options.source);
  if (options.memory_limit)
    throw UsageError({"--memory-limit", "it is set for the file " + options.source, "", "leave it out"});
  if (options.group_size)
    throw UsageError({"--group-size", "it is set for the file " + options.source, "", "leave it out"});
  return read;
}

int required_size(const std::string& flag, const std::optional<int>& given, const std::string& meaning) {
  if (!given)
    throw UsageError({"gantry schedule", flag + " is missing", "the number of " + meaning, "add " + flag + " 4"});
  return *given;
}

schedule::Costs parse_times(const Options& options);

// A configuration says these itself.
void refuse_beside_config(const Options& options) {
  const std::pair<const char*, bool> given[] = {{"-p", options.ranks.has_value()},
                                                {"-v", options.chunks.has_value()},
                                                {"--memory-limit", options.memory_limit.has_value()},
                                                {"--group-size", options.group_size.has_value()},
                                                {"--gather", !options.gather.empty()},
                                                {"--offload", options.offload != "none"}};
  for (const auto& [flag, is_given] : given)
    if (is_given) throw UsageError({flag, "it is set for " + options.source, "", "leave it out, or change the file"});
}

// What a configuration says in place of flags.
void take_config(Options& options) {
  if (!is_config(options.source)) return;
  refuse_beside_config(options);
  options.configured = step_of_config(options.source, options.microbatches);
  options.gather = options.configured->gather;
  options.offload = options.configured->offload;
}

Schedule obtain(const Options& options) {
  if (options.configured) return options.configured->schedule;
  if (is_file(options.source)) return read_file(options);
  const int ranks = required_size("-p", options.ranks, "pipeline ranks");
  const int microbatches = required_size("-m", options.microbatches, "microbatches");
  if (options.chunks && *options.chunks < 1)
    throw UsageError({"-v " + std::to_string(*options.chunks), "the number of chunks per rank", "at least 1", ""});
  if (options.group_size && *options.group_size < 1)
    throw UsageError(
        {"--group-size " + std::to_string(*options.group_size), "the microbatches of a group", "at least 1", ""});
  const schedule::Costs times = parse_times(options);
  return schedule::generate(options.source, ranks, microbatches, options.chunks.value_or(0),
                            {.memory_limit = options.memory_limit.value_or(0),
                             .group_size = options.group_size.value_or(0),
                             .forward = times.forward,
                             .input_gradient = times.input_gradient,
                             .weight_gradient = times.weight_gradient,
                             .hop = times.hop});
}

Schedule obtain_valid(const Options& options) {
  Schedule obtained = obtain(options);
  schedule::validate(obtained);
  const schedule::Offload offload = schedule::offload_of(options.offload);
  if (!options.gather.empty())
    obtained = schedule::with_parameter_actions(schedule::compute_only(obtained),
                                                schedule::gather_of(options.gather, obtained.ranks()));
  if (offload.any()) obtained = schedule::with_offload_actions(schedule::without_messages(obtained), offload);
  schedule::validate(obtained);
  return obtained;
}

double parse_time(std::string_view text, const std::string& flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= kMaxTime))
    throw UsageError({flag, "'" + std::string(text) + "' is not a time", "a number from 0 to 1e15", ""});
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// F,I,W,COMM
std::array<double, 4> parse_four_times(std::string_view text, const std::string& flag) {
  std::vector<double> values;
  for (const auto part : split(text, ',')) values.push_back(parse_time(part, flag));
  if (values.size() != 4) throw UsageError({flag, std::to_string(values.size()) + " numbers", "four: F,I,W,COMM", ""});
  if (values[0] + values[1] + values[2] <= 0)
    throw UsageError({flag, "the computations take no time", "one of F, I, W above 0", ""});
  return {values[0], values[1], values[2], values[3]};
}

// U,R: of a rank's whole share, of which a chunk takes its part.
void add_gather_times(schedule::Costs& costs, const Options& options, const Schedule& of) {
  const auto parts = split(options.gather_times, ',');
  const std::string flag = "--gather-times " + options.gather_times;
  if (parts.size() != 2) throw UsageError({flag, std::to_string(parts.size()) + " numbers", "two: U,R", ""});
  const double unshard = parse_time(parts[0], flag), reduce = parse_time(parts[1], flag);
  if (costs.stages.empty()) costs.stages = schedule::stage_costs(of, costs);
  for (int stage = 0; stage < of.stages(); ++stage) {
    const auto chunks = static_cast<double>(of.stages_of_rank[of.rank_of(stage)].size());
    costs.stages[stage].unshard = unshard / chunks;
    costs.stages[stage].reduce = reduce / chunks;
  }
}

// Of a rank's whole share, of which a chunk takes its part.
void add_host_costs(schedule::Costs& costs, const Options& options, const Schedule& of) {
  if (costs.stages.empty()) costs.stages = schedule::stage_costs(of, costs);
  for (int stage = 0; stage < of.stages(); ++stage) {
    const auto chunks = static_cast<double>(of.stages_of_rank[of.rank_of(stage)].size());
    costs.stages[stage].host_bandwidth = options.host_bandwidth;
    costs.stages[stage].state = options.state / chunks;
  }
}

schedule::Costs parse_times(const Options& options) {
  const auto [forward, input, weight, hop] = parse_four_times(options.times, "--times " + options.times);
  schedule::Costs costs{forward, input, weight, hop};
  if (options.configured && options.stage_times.empty() && options.times == Options().times)
    return options.configured->costs;
  if (options.stage_times.empty()) return costs;
  for (const auto stage : split(options.stage_times, '/')) {
    const auto [f, i, w, comm] = parse_four_times(stage, "--stage-times " + options.stage_times);
    costs.stages.push_back(
        {.forward = f, .input_gradient = i, .weight_gradient = w, .send_forward = comm, .send_backward = comm});
  }
  return costs;
}

schedule::Simulation simulate(const Options& options) {
  schedule::Costs costs = parse_times(options);
  const Schedule simulated = schedule::without_messages(obtain_valid(options));
  const auto given = static_cast<int>(costs.stages.size());
  if (given > 0 && given != simulated.stages())
    throw UsageError({"--stage-times", std::to_string(given) + " stages",
                      "the " + std::to_string(simulated.stages()) + " of the schedule, separated by /", ""});
  if (!schedule::has_extras(simulated)) return schedule::simulate(simulated, costs);
  add_gather_times(costs, options, simulated);
  add_host_costs(costs, options, simulated);
  return schedule::simulate(simulated, costs);
}

std::string describe_sizes(const Schedule& of) {
  return fmt::format("{}: {} ranks, {} stages, {} microbatches", of.name, of.ranks(), of.stages(), of.microbatches);
}

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

std::string recompute_text(const Options& options) {
  const auto& of = options.configured;
  return of && of->recompute ? cli::to_text(*of->recompute, of->layers) : "";
}

void run_show(const Options& options) {
  Schedule shown = obtain_valid(options);
  shown = options.lowered ? schedule::lower(shown) : shown;
  // PyTorch's compute-only form has no messages, which --lowered asks for.
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
  return messages / 2;  // each has two sides
}

std::size_t count_computations(const Schedule& of) {
  std::size_t computations = 0;
  for (const auto& row : of.actions)
    for (const auto& action : row) computations += action.is_compute() ? 1 : 0;
  return computations;
}

// A file's faults are the schedule's own; a name's (unknown, sizes it is not defined for) are configuration.
Schedule read_or_generate(const Options& options) {
  if (!is_file(options.source)) return obtain(options);
  try {
    return obtain(options);
  } catch (const ConfigError& error) {
    throw InputError(error.what());
  }
}

void run_check(const Options& options) {
  const Schedule checked = read_or_generate(options);
  try {
    const Schedule lowered = schedule::lower(checked);  // validates what it is given
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

void run_simulate(const Options& options) {
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

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw ResourceError({path, "the drawing can't be written", "a folder that can be written to", ""});
}

void run_draw(const Options& options) {
  const schedule::Simulation simulation = simulate(options);
  std::string drawing;
  if (options.format == "text") drawing = schedule::draw_text(simulation);
  if (options.format == "svg") drawing = schedule::draw_svg(simulation, "Pipeline schedule " + options.source);
  if (options.format == "trace") drawing = schedule::draw_chrome_trace(simulation);
  if (options.output.empty()) return print_output(drawing);
  write_file(options.output, drawing);
}

void add_source(CLI::App& command, Options& options) {
  std::string names;
  for (const auto& name : schedule::generator_names()) names += (names.empty() ? "" : ", ") + name;
  command
      .add_option("schedule", options.source,
                  "One of " + names + ", a file.csv in PyTorch's form, or a configuration (.yaml)")
      ->required();
  command.add_option("-p,--ranks", options.ranks, "Pipeline ranks (a file says it itself)");
  command.add_option("-m,--microbatches", options.microbatches, "Microbatches (a file says it itself)");
  command.add_option("-v,--chunks", options.chunks, "Stages per rank; the schedule's own default if left out");
  command.add_option("--memory-limit", options.memory_limit, "In activations, for schedules that take one");
  command.add_option("--group-size", options.group_size,
                     "Microbatches that a chunk takes in a row, for interleaved_1f1b; the ranks if left out");
}

void add_times(CLI::App& command, Options& options) {
  command
      .add_option(
          "--times", options.times,
          "F,I,W,COMM: times of a rank's share of a microbatch (forward, input and weight gradient), and of one hop")
      ->capture_default_str();
}

void add_gather(CLI::App& command, Options& options) {
  command
      .add_option("--gather", options.gather,
                  "With the gathers and releases of parameters that are cut over replicas, and the sums of gradients: "
                  "step, window, microbatch or auto")
      ->check(CLI::IsMember({"step", "window", "microbatch", "auto"}));
}

void add_offload(CLI::App& command, Options& options) {
  command
      .add_option("--offload", options.offload,
                  "With the moves of what waits in host memory: optimizer (its state), activations or both")
      ->check(CLI::IsMember({"none", "optimizer", "activations", "both"}));
}

void add_stage_times(CLI::App& command, Options& options) {
  add_times(command, options);
  add_gather(command, options);
  add_offload(command, options);
  command
      .add_option("--host-bandwidth", options.host_bandwidth,
                  "Chunk activations that move to or from host memory in a unit of time; 0: moves take no time")
      ->check(CLI::Range(0.0, kMaxTime));
  command.add_option("--state", options.state, "The optimizer's state of a rank, in chunk activations, for its moves")
      ->check(CLI::Range(0.0, kMaxTime));
  command
      .add_option("--gather-times", options.gather_times,
                  "U,R: times of a gather of a rank's parameters and of its gradients' sum, beside what it computes")
      ->capture_default_str();
  command.add_option("--stage-times", options.stage_times,
                     "F,I,W,COMM of every stage, separated by /: its own times, and of a message that leaves it");
}

// The options live in the callback, and so as long as the command does.
std::pair<CLI::App*, Options*> add_subcommand(CLI::App& group, const std::string& name, const std::string& help,
                                              void (*run)(const Options&)) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = group.add_subcommand(name, help);
  add_source(*command, *options);
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
  show->add_flag("--csv", show_options->csv, "In PyTorch's CSV form");
  show->add_flag("--lowered", show_options->lowered, "With sends and receives");
  add_times(*show, *show_options);
  add_gather(*show, *show_options);
  add_offload(*show, *show_options);
  const auto [check, check_options] =
      add_subcommand(*group, "check", "Prove that it can run; exit code 4 if it can't", run_check);
  add_times(*check, *check_options);
  check->add_flag("--json", check_options->json, "As JSON");
  const auto [simulate, simulate_options] =
      add_subcommand(*group, "simulate", "Makespan, bubble and peak memory", run_simulate);
  add_stage_times(*simulate, *simulate_options);
  simulate->add_flag("--json", simulate_options->json, "As JSON");
  const auto [draw, draw_options] = add_subcommand(*group, "draw", "Draw what runs when", run_draw);
  add_stage_times(*draw, *draw_options);
  draw->add_option("--format", draw_options->format, "text, svg or trace (Chrome)")
      ->check(CLI::IsMember({"text", "svg", "trace"}))
      ->capture_default_str();
  draw->add_option("--output", draw_options->output, "The file to write; stdout if left out");
}

}  // namespace gantry::cli
