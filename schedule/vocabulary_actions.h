// Embedding and head that are computed by all ranks of a pipeline, as actions: Yeung et al. (arXiv 2411.05288).
//
// Each rank has these actions for each microbatch, written with the rank's lowest stage. IF looks up the embeddings of
// the tokens. S computes the logits and their statistics. C computes this rank's part of the head's input gradient from
// the results of S; only algorithm 2 has it, and a schedule with C uses algorithm 2. T computes the head gradients; in
// algorithm 1 also the part of C. IB computes the embedding gradients. In the paper, the parts are combined on a
// separate stream. Here a rank combines them between its actions, so C has a position in its row.
//
// Dependencies: F of the first stage needs IF of all ranks. S needs F of the last stage. C and T need S of all ranks.
// The backward of the last stage needs T of all ranks or, with C, C of all ranks and no T. IB needs the backward of the
// first stage. Messages are sent as soon as a rank reaches them, in one order of microbatches for all ranks. The
// message of an S or IB is posted when the previous one starts, so S and IB also need that every rank has started the
// previous one.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {

inline constexpr std::array kVocabularyKinds = {ActionKind::kEmbeddingForward, ActionKind::kEmbeddingBackward,
                                                ActionKind::kHeadForward, ActionKind::kHeadCombine,
                                                ActionKind::kHeadBackward};

// Whether any rank has actions of this kind.
bool has_vocabulary(const Schedule& schedule);
// The algorithm of a schedule with such actions: 2 if it has a C, else 1.
int algorithm_of(const Schedule& schedule);

// The stage that a rank's passes are written with: its lowest one.
int vocabulary_stage(const Schedule& schedule, int rank);

// An action that another action waits for, on these ranks, unless it is in its own row. `begun`: it only has to have
// started.
struct Need {
  Action action;  // by rank: the lowest stage of the rank
  bool begun = false;
};

class VocabularyNeeds {
 public:
  // For a schedule with passes. Throws ConfigError like validate() if their number or order is wrong.
  explicit VocabularyNeeds(const Schedule& schedule);

  // The dependencies of a pass, or of a stage's forward or backward on passes.
  std::vector<Need> of(const Action& action) const;

 private:
  void check_counts(const Schedule& schedule) const;
  void check_orders(const Schedule& schedule);

  std::vector<int> stage_of_rank_;  // stage that the passes of each rank are written with
  int last_stage_ = 0;
  bool trains_ = false;
  int algorithm_ = 1;
  std::vector<bool> first_splits_;          // by microbatch: whether the backward of the first stage is I
  std::array<std::vector<int>, 2> before_;  // for S and IB: the previous microbatch, -1 for none
};

// Adds the passes to a schedule of F, B, I and W so that, with `costs`, it ends soonest. The rows keep their order,
// except that forwards may run further ahead. The number of additional forwards is the one that is best for the longest
// rank; of equally good numbers the smallest. `algorithm`: 1 or 2. Throws ConfigError if actions overlap in pairs.
Schedule with_vocabulary(const Schedule& schedule, const Costs& costs, int algorithm);
// The same with exactly `ahead` additional forwards ahead; absent if that is impossible.
std::optional<Schedule> with_vocabulary(const Schedule& schedule, const Costs& costs, int algorithm, int ahead);

}  // namespace gantry::schedule
