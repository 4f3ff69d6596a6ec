// Embedding and head as passes of all ranks: proved, simulated, and placed where the step is shortest.
#include <gtest/gtest.h>
#include <random>

#include "gantry/core/error.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {
namespace {

Costs head_of(double forwards, double hop = 0) {
  return {.hop = hop,
          .vocabulary = {.embedding_forward = 0.01,
                         .embedding_backward = 0.01,
                         .head_forward = forwards,
                         .head_backward = 2 * forwards}};
}

int count_of(const Schedule& schedule, ActionKind kind) {
  int count = 0;
  for (const auto& row : schedule.actions)
    for (const auto& action : row) count += action.kind == kind;
  return count;
}

TEST(VocabularyActions, EveryScheduleWithoutPairsIsProvedAndLowered) {
  for (const auto& name : generator_names()) {
    if (name == "dualpipe_v") continue;
    for (const int ranks : {1, 2, 3, 4, 8})
      for (const int microbatches : {1, 2, 3, 7, 16}) {
        SCOPED_TRACE(name + " " + std::to_string(ranks) + " " + std::to_string(microbatches));
        const Schedule plain = generate(name, ranks, microbatches);
        const Schedule made = with_vocabulary(plain, head_of(0.3, 0.05));
        validate(made);
        validate(lower(made));
        validate(forward_only(made));
        validate(lower(forward_only(made)));
        for (const ActionKind kind : kVocabularyKinds) EXPECT_EQ(count_of(made, kind), ranks * microbatches);
        for (int rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(without_vocabulary(made).actions[rank].size(), plain.actions[rank].size());
        EXPECT_EQ(compute_only(lower(made)), made);
        EXPECT_EQ(from_csv(to_csv(made), name).actions, made.actions);
      }
  }
}

TEST(VocabularyActions, RandomTimesAreProvedToo) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> time(0.05, 2);
  for (int i = 0; i < 60; ++i) {
    const char* name = std::vector<const char*>{"1f1b", "zb_h1", "v_half", "interleaved_1f1b", "gpipe"}[i % 5];
    const Schedule plain = generate(name, 2 + i % 4, 1 + i % 9);
    Costs costs = head_of(time(random), 0.2 * time(random));
    for (int stage = 0; stage < plain.stages(); ++stage)
      costs.stages.push_back(
          {.forward = time(random), .input_gradient = time(random), .weight_gradient = time(random)});
    const Schedule made = with_vocabulary(plain, costs);
    validate(lower(made));
    EXPECT_GT(simulate(made, costs).makespan_max_rank, 0);
  }
}

// With a hop between ranks the period is the work, in every step but the ramps: two more forwards ahead are needed, as
// the paper says of algorithm 1, and one fewer makes the step longer.
TEST(VocabularyActions, TwoForwardsAheadReachThePeriod) {
  for (const int ranks : {4, 8}) {
    const Costs costs = head_of(0.3, 0.05);
    const int few = 4 * ranks, many = 8 * ranks;
    const auto period = [&](int ahead) {
      const auto longest = [&](int microbatches) {
        const auto made = with_vocabulary(generate("1f1b", ranks, microbatches), costs, ahead);
        return simulate(*made, costs).makespan_max_rank;
      };
      return (longest(many) - longest(few)) / (many - few);
    };
    const double work = 3 + costs.vocabulary.sum();
    EXPECT_NEAR(period(2), work, 0.01 * work) << ranks;
    EXPECT_GT(period(0), 1.02 * work) << ranks;
    const Schedule chosen = with_vocabulary(generate("1f1b", ranks, many), costs);
    EXPECT_LE(simulate(chosen, costs).peak_activations[0], ranks + 2);
  }
}

// The whole head on the last stage, against its parts on all ranks: 8 ranks, a head as large as a stage's share.
TEST(VocabularyActions, ALargeHeadIsShortenedByTheRanks) {
  const int ranks = 8, microbatches = 64;
  const Schedule plain = generate("1f1b", ranks, microbatches);
  Costs uneven;
  for (int stage = 0; stage < ranks; ++stage) uneven.stages.push_back({});
  uneven.stages.back() = {.forward = 2, .input_gradient = 2, .weight_gradient = 2};
  const Costs costs = head_of(1.0 / ranks, 0.02);
  const double before = simulate(plain, uneven).makespan_max_rank;
  const double after = simulate(with_vocabulary(plain, costs), costs).makespan_max_rank;
  EXPECT_LT(after, 0.65 * before);
}

template <class Change>
std::string refused(Change change) {
  Schedule made = with_vocabulary(generate("1f1b", 2, 3), head_of(0.3));
  change(made);
  try {
    validate(made);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::vector<Action>::iterator place_of(std::vector<Action>& row, ActionKind kind, int microbatch) {
  return std::ranges::find_if(
      row, [&](const Action& action) { return action.kind == kind && action.microbatch == microbatch; });
}

TEST(VocabularyActions, WhatIsWrongIsRefused) {
  using enum ActionKind;
  EXPECT_EQ(refused([](Schedule&) {}), "");
  EXPECT_NE(refused([](Schedule& made) {
              made.actions[1].erase(place_of(made.actions[1], kHeadBackward, 2));
            }).find("it has 2 of T, for 3 microbatches; expected 3"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) {
              auto& row = made.actions[1];
              std::iter_swap(place_of(row, kEmbeddingForward, 0), place_of(row, kEmbeddingForward, 1));
            }).find("its IF have another order than those of rank 0"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) {
              auto& row = made.actions[1];  // the last stage's backward before its own T
              std::iter_swap(place_of(row, kBackward, 0), place_of(row, kHeadBackward, 0));
            }).find("which makes its data"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) {
              auto& row = made.actions[0];  // rank 0's last T behind all backwards
              const auto last = place_of(row, kHeadBackward, 2);
              const Action moved = *last;
              row.erase(last);
              row.push_back(moved);
            }).find("deadlock"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) { place_of(made.actions[1], kHeadForward, 0)->stage = 0; }), "");
}

TEST(VocabularyActions, PairsAreRefusedByName) {
  try {
    with_vocabulary(generate("dualpipe_v", 2, 4), {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("dualpipe_v runs forwards and backwards in pairs"), std::string::npos);
  }
}

}  // namespace
}  // namespace gantry::schedule
