// Embedding and head that are computed by all ranks of a pipeline, as actions: Yeung et al. (arXiv 2411.05288). Per
// rank and microbatch: IF (rows of the tokens), S (logits and their statistics), C (this rank's part of the gradient
// before the head, of what S prepared: algorithm 2 alone), T (gradients of the head; in algorithm 1 that part, too), IB
// (gradients of the rows). Each is written with the rank's lowest stage. A schedule with C is algorithm 2's.
// The paper combines parts on a stream beside; here a rank does so between its actions, so C has a place in its row.
//
// F of the first stage needs all ranks' IF, S the last stage's F, C and T all ranks' S, the last stage's backward all
// ranks' T, or with C all ranks' C and no T, and IB the first stage's backward. Messages go out as ranks come to them,
// in one order of microbatches for all ranks: an S or IB is posted for when the one before it begins, so it also needs
// that every rank has begun that one.
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

// Any rank's actions are of this kind.
bool has_vocabulary(const Schedule& schedule);
// Of the two, of a schedule that has them: 2 if any is a C.
int algorithm_of(const Schedule& schedule);
// The same schedule without them.
Schedule without_vocabulary(const Schedule& schedule);

// The stage that a rank's passes are written with: its lowest one.
int vocabulary_stage(const Schedule& schedule, int rank);

// What an action waits for: actions of these ranks, as far as they are not its own row's. `begun`: it is enough that
// they have begun.
struct Need {
  Action action;  // of the rank that holds its stage
  bool begun = false;
};

class VocabularyNeeds {
 public:
  // Of a schedule with passes; ConfigError as of validate() where their number or order is wrong.
  explicit VocabularyNeeds(const Schedule& schedule);

  // Of a pass, or of a stage's forward or backward because of passes.
  std::vector<Need> of(const Action& action) const;

 private:
  void check_counts(const Schedule& schedule) const;
  void check_orders(const Schedule& schedule);

  std::vector<int> stage_of_rank_;  // that a rank's passes are written with
  int last_stage_ = 0;
  bool trains_ = false;
  int algorithm_ = 1;
  std::vector<bool> first_splits_;          // by microbatch: the first stage's backward is I
  std::array<std::vector<int>, 2> before_;  // of S and of IB: the microbatch before, -1 for none
};

// A schedule of F, B, I and W with the passes between them, where `costs` has them end soonest: the rows' own order
// stays, but that forwards may run ahead by so many more actions of a rank as is best for the longest rank; of equals
// the fewest. `algorithm`: 1 or 2. ConfigError where actions overlap in pairs.
Schedule with_vocabulary(const Schedule& schedule, const Costs& costs, int algorithm);
// The same with forwards ahead by exactly `ahead` more; absent where that can't be.
std::optional<Schedule> with_vocabulary(const Schedule& schedule, const Costs& costs, int algorithm, int ahead);

}  // namespace gantry::schedule
