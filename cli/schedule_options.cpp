#include "gantry/cli/schedule_options.h"

#include "gantry/schedule/schedule.h"

namespace gantry::cli {

void add_schedule_source(CLI::App& command, ScheduleOptions& options) {
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

void add_times(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option(
          "--times", options.times,
          "F,I,W,COMM: times of a rank's share of a microbatch (forward, input and weight gradient), and of one hop")
      ->capture_default_str();
}

void add_gather(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option("--gather", options.gather,
                  "With the gathers and releases of parameters that are cut over replicas, and the sums of gradients: "
                  "step, window, microbatch or auto")
      ->check(CLI::IsMember({"step", "window", "microbatch", "auto"}));
}

void add_offload(CLI::App& command, ScheduleOptions& options) {
  command
      .add_option("--offload", options.offload,
                  "With the moves of what waits in host memory: optimizer (its state), activations or both")
      ->check(CLI::IsMember({"none", "optimizer", "activations", "both"}));
}

void add_all_times(CLI::App& command, ScheduleOptions& options) {
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

}  // namespace gantry::cli
