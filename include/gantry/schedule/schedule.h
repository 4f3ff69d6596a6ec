// A schedule: the list of actions of each pipeline rank, and which rank has which stage.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/action.h"

namespace gantry::schedule {

struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<std::vector<int>> stages_of_rank;
  std::vector<std::vector<Action>> actions;  // by rank

  int ranks() const { return static_cast<int>(actions.size()); }
  int stages() const;            // one more than the highest stage that a rank holds
  int rank_of(int stage) const;  // -1 for none
  bool has_pairs() const;        // overlapped ones, of a forward and a backward
  bool operator==(const Schedule&) const = default;
};

// What generators may be told: a limit or a group size of 0 is the schedule's own default. The times, of a rank's whole
// share of one microbatch and of one hop, are for the heuristic ones.
struct GeneratorOptions {
  double memory_limit = 0;  // in activations; zb_auto's
  int group_size = 0;       // microbatches that a chunk takes in a row; interleaved_1f1b's, by default the ranks
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  double hop = 0;
};

// By name, from the registry of generators; ConfigError for an unknown name, naming the known and the nearest, or for
// sizes the schedule is not defined for. ranks, microbatches, chunks >= 1; chunks 0 means the schedule's own default.
Schedule generate(const std::string& name, int ranks, int microbatches, int chunks = 0,
                  const GeneratorOptions& options = {});
std::vector<std::string> generator_names();

// The compute actions without any backward: what evaluation runs.
Schedule forward_only(const Schedule& schedule);

// Without the microbatches from `microbatches` on: an order that is valid stays so.
Schedule first_microbatches(Schedule schedule, int microbatches);

// True if any action is a message. compute_only() leaves all out that computes nothing, so that lower() places messages
// anew.
bool is_lowered(const Schedule& schedule);
Schedule compute_only(const Schedule& schedule);
Schedule without_messages(const Schedule& schedule);

// Adds SEND and RECV actions where neighbouring stages are on different ranks: a send right after the action (or
// overlapped pair) that makes its data, a receive right before the one that needs it. Where ranks would then block each
// other if a send waited for its receive, a receive moves up in front of the send that it would block, and no further.
// With passes of the vocabulary none moves: a step's sends never wait for their receives.
// Extra actions stay where they are. A schedule that has messages already is returned as it is. ConfigError as of
// validate() if the schedule is not valid.
Schedule lower(const Schedule& schedule);

// One row per rank, comma separated, as PyTorch reads and writes them, compute-only or lowered. Reading drops idle
// (empty) cells and takes the placement from the rows: a rank holds the stages that its row names, in ascending order.
// It checks the text alone, with ConfigError naming line and cell; validate() checks what it says. InputError for a
// file that can't be read.
std::string to_csv(const Schedule& schedule);
Schedule from_csv(const std::string& text, const std::string& name);
Schedule load_csv(const std::string& path);

}  // namespace gantry::schedule
