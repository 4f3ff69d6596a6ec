#include "gantry/cli/schedule_times.h"

#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/schedule/extra_actions.h"

namespace gantry::cli {
namespace {

using schedule::Schedule;

double parse_time(std::string_view text, const std::string& flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= kMaxTime))
    throw UsageError({flag, "'" + std::string(text) + "' is not a time", "a number from 0 to 1e15", ""});
  return value;
}

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// F,I,W,COMM
std::array<double, 4> parse_four_times(std::string_view text, const std::string& flag) {
  std::vector<double> values;
  for (const auto part : split_at(text, ',')) values.push_back(parse_time(part, flag));
  if (values.size() != 4) throw UsageError({flag, std::to_string(values.size()) + " numbers", "four: F,I,W,COMM", ""});
  if (values[0] + values[1] + values[2] <= 0)
    throw UsageError({flag, "the computations take no time", "one of F, I, W above 0", ""});
  return {values[0], values[1], values[2], values[3]};
}

// Sets the times U,R of a rank, divided equally among its chunks.
void add_gather_times(schedule::Costs& costs, const ScheduleOptions& options, const Schedule& of) {
  const auto parts = split_at(options.gather_times, ',');
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

// Sets the optimizer state of a rank, divided equally among its chunks.
void add_host_costs(schedule::Costs& costs, const ScheduleOptions& options, const Schedule& of) {
  if (costs.stages.empty()) costs.stages = schedule::stage_costs(of, costs);
  for (int stage = 0; stage < of.stages(); ++stage) {
    const auto chunks = static_cast<double>(of.stages_of_rank[of.rank_of(stage)].size());
    costs.stages[stage].host_bandwidth = options.host_bandwidth;
    costs.stages[stage].state = options.state / chunks;
  }
}

}  // namespace

schedule::Costs stated_times(const ScheduleOptions& options) {
  const auto [forward, input, weight, hop] = parse_four_times(options.times, "--times " + options.times);
  schedule::Costs costs{forward, input, weight, hop};
  if (options.configured && options.stage_times.empty() && options.times == ScheduleOptions().times)
    return options.configured->costs;
  if (options.stage_times.empty()) return costs;
  for (const auto stage : split_at(options.stage_times, '/')) {
    const auto [f, i, w, comm] = parse_four_times(stage, "--stage-times " + options.stage_times);
    costs.stages.push_back(
        {.forward = f, .input_gradient = i, .weight_gradient = w, .send_forward = comm, .send_backward = comm});
  }
  return costs;
}

void add_extra_times(schedule::Costs& costs, const Schedule& of, const ScheduleOptions& options) {
  const auto given = static_cast<int>(costs.stages.size());
  if (given > 0 && given != of.stages())
    throw UsageError({"--stage-times", "times of " + std::to_string(given) + " stages are given",
                      "times of the " + std::to_string(of.stages()) + " stages of the schedule, separated by /", ""});
  if (!schedule::has_extras(of)) return;
  add_gather_times(costs, options, of);
  add_host_costs(costs, options, of);
}

}  // namespace gantry::cli
