#include "gantry/cli/schedule_options.h"

#include "gantry/schedule/schedule.h"

namespace gantry::cli {

void add_schedule_source(CLI::App& command, ScheduleOptions& options) {
  std::string names;
  for (const auto& name : schedule::generator_names()) names += (names.empty() ? "" : ", ") + name;
  command
      .add_option("schedule", options.source,
                  "One of " + names + ", a file.csv in PyTorch's format, or a configuration (.yaml)")
      ->required();
  command.add_option("-p,--ranks", options.ranks, "Number of pipeline ranks; not for files, which define it");
  command.add_option("-m,--microbatches", options.microbatches,
                     "Number of microbatches; not for CSV files, which define it");
  command.add_option("-v,--chunks", options.chunks, "Number of stages per rank; default: the default of the schedule");
  command.add_option("--memory-limit", options.memory_limit,
                     "Maximum number of activations per rank, for zb_auto; default: the number of ranks. Above the "
                     "default, an activation that waits for its weight gradient counts half");
  command.add_option(
      "--group-size", options.group_size,
      "Number of consecutive microbatches of a chunk, for interleaved_1f1b; default: the number of ranks");
}

void add_times(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option(
          "--times", options.times,
          "F,I,W,COMM: times of a microbatch on one rank (forward, input gradient, weight gradient) and of one message")
      ->capture_default_str();
}

void add_gather(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option(
          "--gather", options.gather,
          "Add the gathers and releases of parameters that are sharded over replicas, and the reductions of their "
          "gradients: once in a step, window or microbatch, or auto")
      ->check(CLI::IsMember({"step", "window", "microbatch", "auto"}));
}

void add_offload(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option("--offload", options.offload,
                  "Add the transfers to and from host memory of the optimizer state, of activations, or of both")
      ->check(CLI::IsMember({"none", "optimizer", "activations", "both"}));
}

void add_all_times(CLI::App& command, ScheduleOptions& options) {
  add_times(command, options);
  add_gather(command, options);
  add_offload(command, options);
  command
      .add_option(
          "--host-bandwidth", options.host_bandwidth,
          "Number of chunk activations transferred to or from host memory per unit of time; 0: transfers take no time")
      ->check(CLI::Range(0.0, kMaxTime));
  command.add_option("--state", options.state, "Size of the optimizer state of a rank, in chunk activations")
      ->check(CLI::Range(0.0, kMaxTime));
  command
      .add_option(
          "--gather-times", options.gather_times,
          "U,R: times to gather the parameters of a rank (unshard) and to reduce its gradients, next to computations")
      ->capture_default_str();
  command.add_option("--stage-times", options.stage_times,
                     "F,I,W,COMM of every stage, separated by /; COMM is the time of a message that the stage sends");
}

}  // namespace gantry::cli
