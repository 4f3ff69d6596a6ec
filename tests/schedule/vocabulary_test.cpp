// Embedding and head as passes on all ranks: validated, simulated, and placed so that the step is shortest.
#include <gtest/gtest.h>
#include <random>

#include "gantry/core/error.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {
namespace {

// The head has three matrix multiplications. Algorithm 2 has two of them in S.
Costs head_of(double product, double hop = 0, int algorithm = 1) {
  return {.hop = hop,
          .vocabulary = {.embedding_forward = 0.01,
                         .embedding_backward = 0.01,
                         .head_forward = algorithm * product,
                         .head_backward = (3 - algorithm) * product,
                         .head_combine = algorithm == 1 ? 0 : 0.01}};
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
        const int algorithm = 1 + (ranks + microbatches) % 2;
        SCOPED_TRACE(name + " " + std::to_string(ranks) + " " + std::to_string(microbatches));
        const Schedule plain = generate(name, ranks, microbatches);
        const Schedule made = with_vocabulary(plain, head_of(0.3, 0.05, algorithm), algorithm);
        validate(made);
        validate(lower(made));
        validate(forward_only(made));
        validate(lower(forward_only(made)));
        EXPECT_EQ(algorithm_of(made), algorithm);
        for (const ActionKind kind : kVocabularyKinds)
          EXPECT_EQ(count_of(made, kind),
                    kind == ActionKind::kHeadCombine && algorithm == 1 ? 0 : ranks * microbatches);
        for (int rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(std::ranges::count_if(made.actions[rank],
                                          [](const Action& action) { return !is_of_vocabulary(action.kind); }),
                    plain.actions[rank].size());
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
    const int algorithm = 1 + i / 5 % 2;
    Costs costs = head_of(time(random), 0.2 * time(random), algorithm);
    for (int stage = 0; stage < plain.stages(); ++stage)
      costs.stages.push_back(
          {.forward = time(random), .input_gradient = time(random), .weight_gradient = time(random)});
    const Schedule made = with_vocabulary(plain, costs, algorithm);
    validate(lower(made));
    EXPECT_GT(simulate(made, costs).makespan_max_rank, 0);
  }
}

// With a hop between ranks, the period between the ramps equals the work only with additional forwards ahead.
// Their number is that of the meetings of all ranks between a microbatch's forward and backward: two in
// algorithm 1 and one in algorithm 2, as in the paper. Without them the step is longer.
class VocabularyAhead : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, VocabularyAhead, ::testing::Values(1, 2));

TEST_P(VocabularyAhead, ReachesThePeriod) {
  const int algorithm = GetParam(), needed = 3 - algorithm;
  for (const int ranks : {4, 8}) {
    const Costs costs = head_of(0.3, 0.05, algorithm);
    const int few = 4 * ranks, many = 8 * ranks;
    const auto period = [&](int ahead) {
      const auto longest = [&](int microbatches) {
        const auto made = with_vocabulary(generate("1f1b", ranks, microbatches), costs, algorithm, ahead);
        return simulate(*made, costs).makespan_max_rank;
      };
      return (longest(many) - longest(few)) / (many - few);
    };
    const double work = 3 + costs.vocabulary.sum();
    EXPECT_NEAR(period(needed), work, 0.01 * work) << ranks;
    EXPECT_GT(period(0), 1.02 * work) << ranks;
    const Schedule chosen = with_vocabulary(generate("1f1b", ranks, many), costs, algorithm);
    EXPECT_LE(simulate(chosen, costs).peak_activations[0], ranks + needed);
  }
}

// Compares the full head on the last stage with its shards on all ranks: 8 ranks, and a head with the work of
// one stage.
TEST(VocabularyActions, ALargeHeadIsShortenedByTheRanks) {
  const int ranks = 8, microbatches = 64;
  const Schedule plain = generate("1f1b", ranks, microbatches);
  Costs uneven;
  for (int stage = 0; stage < ranks; ++stage) uneven.stages.push_back({});
  uneven.stages.back() = {.forward = 2, .input_gradient = 2, .weight_gradient = 2};
  const double before = simulate(plain, uneven).makespan_max_rank;
  for (const int algorithm : {1, 2}) {
    const Costs costs = head_of(1.0 / ranks, 0.02, algorithm);
    EXPECT_LT(simulate(with_vocabulary(plain, costs, algorithm), costs).makespan_max_rank, 0.65 * before);
  }
}

template <class Change>
std::string refused(Change change, int algorithm = 1) {
  Schedule made = with_vocabulary(generate("1f1b", 2, 3), head_of(0.3, 0, algorithm), algorithm);
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
            }).find("the rank has 2 actions of kind T, for 3 microbatches; expected 3"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) {
              auto& row = made.actions[1];
              std::iter_swap(place_of(row, kEmbeddingForward, 0), place_of(row, kEmbeddingForward, 1));
            }).find("the actions IF have a different order from those of rank 0"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) {
              auto& row = made.actions[1];  // the last stage's backward before its own T
              std::iter_swap(place_of(row, kBackward, 0), place_of(row, kHeadBackward, 0));
            }).find("which produces its data"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) {
              auto& row = made.actions[0];  // rank 0's last T after all backwards
              const auto last = place_of(row, kHeadBackward, 2);
              const Action moved = *last;
              row.erase(last);
              row.push_back(moved);
            }).find("deadlock"),
            std::string::npos);
  EXPECT_NE(refused([](Schedule& made) { place_of(made.actions[1], kHeadForward, 0)->stage = 0; }), "");
  const auto without_one_c = [](Schedule& made) { made.actions[1].erase(place_of(made.actions[1], kHeadCombine, 2)); };
  EXPECT_NE(refused(without_one_c, 2).find("the rank has 2 actions of kind C, for 3 microbatches; expected 3"),
            std::string::npos);
  const auto backward_before_c = [](Schedule& made) {
    auto& row = made.actions[1];
    std::iter_swap(place_of(row, kBackward, 2), place_of(row, kHeadCombine, 2));
  };
  const std::string said = refused(backward_before_c, 2);
  EXPECT_NE(said.find("which produces its data"), std::string::npos) << said;
  const auto last_t_at_the_end = [](Schedule& made) {
    auto& row = made.actions[0];
    const auto last = place_of(row, kHeadBackward, 2);
    const Action moved = *last;
    row.erase(last);
    row.push_back(moved);
  };
  EXPECT_EQ(refused(last_t_at_the_end, 2), "") << "nobody waits for it";
}

TEST(VocabularyActions, PairsAreRefusedByName) {
  try {
    with_vocabulary(generate("dualpipe_v", 2, 4), {}, 2);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("dualpipe_v runs forwards and backwards in pairs"), std::string::npos);
  }
}

}  // namespace
}  // namespace gantry::schedule
