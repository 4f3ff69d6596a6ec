// A schedule: the list of actions of each pipeline rank, and the stages of each rank.
#pragma once

#include <string>
#include <vector>

#include "gantry/schedule/action.h"

namespace gantry::schedule {

// The actions of all pipeline ranks for one step.
struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<std::vector<int>> stages_of_rank;
  std::vector<std::vector<Action>> actions;  // by rank

  int ranks() const { return static_cast<int>(actions.size()); }
  int stages() const;            // highest stage of all ranks + 1
  int rank_of(int stage) const;  // -1 for none
  bool has_pairs() const;        // overlapped pairs of a forward and a backward
  bool operator==(const Schedule&) const = default;
};

// Options of generators. 0 for a limit or a group size is the schedule's default. The times are those of a rank's full
// share of one microbatch, and of one hop; heuristic generators use them.
struct GeneratorOptions {
  double memory_limit = 0;  // for zb_auto: number of activations
  int group_size = 0;       // for interleaved_1f1b: consecutive microbatches of a chunk; 0: the number of ranks
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  double hop = 0;
};

// Returns a schedule from the registry of generators. ranks, microbatches >= 1; chunks 0: the schedule's default.
// Throws ConfigError for an unknown name, with the known names and the most similar one, or for sizes for which the
// schedule is not defined.
Schedule generate(const std::string& name, int ranks, int microbatches, int chunks = 0,
                  const GeneratorOptions& options = {});
std::vector<std::string> generator_names();

// The compute actions without backwards, for evaluation.
Schedule forward_only(const Schedule& schedule);

// The schedule with only the first `microbatches` microbatches. A valid order stays valid.
Schedule first_microbatches(Schedule schedule, int microbatches);

// is_lowered(): true if any action is a message. compute_only() removes all actions that do not compute, so that
// lower() can place messages again.
bool is_lowered(const Schedule& schedule);
Schedule compute_only(const Schedule& schedule);
Schedule without_messages(const Schedule& schedule);

// Adds SEND and RECV actions between neighbouring stages on different ranks: a send directly after the action (or
// overlapped pair) that computes its data, a receive directly before the action that needs it. If ranks would block
// each other when a send waits for its receive, the receive is moved before the send that it would block, and not
// further. With passes of the vocabulary no receive is moved: sends of a step never wait for their receives. Extra
// actions are not moved. A schedule with messages is returned unchanged. Throws ConfigError like validate() if the
// schedule is not valid.
Schedule lower(const Schedule& schedule);

// The CSV form: one row per rank, in the format that PyTorch reads and writes, compute-only or lowered. Reading ignores
// idle (empty) cells. The placement follows from the rows: a rank holds the stages in its row, in ascending order.
// Throws ConfigError with line and cell for syntax errors; use validate() to check the schedule. Throws InputError if
// the file cannot be read.
std::string to_csv(const Schedule& schedule);
Schedule from_csv(const std::string& text, const std::string& name);
Schedule load_csv(const std::string& path);

}  // namespace gantry::schedule
