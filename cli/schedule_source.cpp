#include "gantry/cli/schedule_source.h"

#include <utility>

#include "gantry/cli/schedule_times.h"
#include "gantry/core/error.h"
#include "gantry/schedule/extra_actions.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/schedule/parameter_actions.h"
#include "gantry/schedule/validate.h"

namespace gantry::cli {
namespace {

using schedule::Schedule;

// A size that is given with a file must equal the size in the file.
void require_same(const std::string& flag, const std::optional<int>& given, int in_file, const std::string& path) {
  if (given && *given != in_file)
    throw UsageError(
        {flag + " " + std::to_string(*given), path + " has " + std::to_string(in_file), "", "leave " + flag + " out"});
}

Schedule read_schedule_file(const ScheduleOptions& options) {
  Schedule read = schedule::load_csv(options.source);
  require_same("-p", options.ranks, read.ranks(), options.source);
  require_same("-m", options.microbatches, read.microbatches, options.source);
  const auto chunks = static_cast<int>(read.stages_of_rank.front().size());
  require_same("-v", options.chunks, chunks, options.source);
  if (options.memory_limit)
    throw UsageError(
        {"--memory-limit", "the file " + options.source + " has no memory limit", "", "leave out --memory-limit"});
  if (options.group_size)
    throw UsageError(
        {"--group-size", "the file " + options.source + " defines its groups", "", "leave out --group-size"});
  return read;
}

void require_sizes(const ScheduleOptions& options) {
  if (options.ranks && options.microbatches) return;
  if (options.microbatches)
    throw UsageError({"gantry schedule", "-p is missing", "the number of pipeline ranks", "add -p 4"});
  if (options.ranks) throw UsageError({"gantry schedule", "-m is missing", "the number of microbatches", "add -m 8"});
  throw UsageError({"gantry schedule", "-p and -m are missing", "the numbers of pipeline ranks and of microbatches",
                    "add -p 4 -m 8"});
}

bool is_config(const std::string& source) { return source.ends_with(".yaml") || source.ends_with(".yml"); }

// A configuration defines these values itself.
void refuse_next_to_config(const ScheduleOptions& options) {
  const std::pair<const char*, bool> given[] = {{"-p", options.ranks.has_value()},
                                                {"-v", options.chunks.has_value()},
                                                {"--memory-limit", options.memory_limit.has_value()},
                                                {"--group-size", options.group_size.has_value()},
                                                {"--gather", !options.gather.empty()},
                                                {"--offload", options.offload != "none"}};
  for (const auto& [flag, is_given] : given)
    if (is_given)
      throw UsageError(
          {flag, options.source + " defines the value", "", std::string("leave out ") + flag + ", or change the file"});
}

}  // namespace

bool is_schedule_csv(const std::string& source) {
  return source.ends_with(".csv") || source.find('/') != std::string::npos;
}

void take_config(ScheduleOptions& options) {
  if (!is_config(options.source)) return;
  refuse_next_to_config(options);
  options.configured = planner::configured_step(Config::load(options.source, {}), options.microbatches);
  options.gather = options.configured->gather;
  options.offload = options.configured->offload;
}

Schedule named_schedule(const ScheduleOptions& options) {
  if (options.configured) return options.configured->schedule;
  if (is_schedule_csv(options.source)) return read_schedule_file(options);
  require_sizes(options);
  if (options.chunks && *options.chunks < 1)
    throw UsageError(
        {"-v " + std::to_string(*options.chunks), "the number of chunks per rank is too small", "at least 1", ""});
  if (options.group_size && *options.group_size < 1)
    throw UsageError({"--group-size " + std::to_string(*options.group_size),
                      "the number of microbatches of a group is too small", "at least 1", ""});
  const schedule::Costs times = stated_times(options);
  return schedule::generate(options.source, *options.ranks, *options.microbatches, options.chunks.value_or(0),
                            {.memory_limit = options.memory_limit.value_or(0),
                             .group_size = options.group_size.value_or(0),
                             .forward = times.forward,
                             .input_gradient = times.input_gradient,
                             .weight_gradient = times.weight_gradient,
                             .hop = times.hop});
}

Schedule valid_schedule(const ScheduleOptions& options) {
  Schedule obtained = named_schedule(options);
  schedule::validate(obtained);
  const schedule::Offload offload = schedule::offload_of(options.offload);
  if (!options.gather.empty())
    obtained = schedule::with_parameter_actions(schedule::compute_only(obtained),
                                                schedule::gather_of(options.gather, obtained.ranks()));
  if (offload.any()) obtained = schedule::with_offload_actions(schedule::without_messages(obtained), offload);
  schedule::validate(obtained);
  return obtained;
}

}  // namespace gantry::cli
