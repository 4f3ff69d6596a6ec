// The heuristic schedules compared with their authors' own constructions: neither the longest rank nor the
// whole schedule takes longer, and the largest peak of activations is not higher. With GANTRY_LONG=1 the test
// covers every size up to 16 ranks and takes some minutes.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/schedule/generators/fill_search.h"
#include "gantry/schedule/generators/zb_heuristic.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"
#include "published_blocks.h"
#include "published_heuristics.h"

namespace gantry::schedule {
namespace {

using testing::BuildingBlocks;
using testing::PublishedTimes;
using testing::PublishedZeroBubble;
using testing::PublishedZeroBubbleV;

struct Published {
  std::string name;      // name of the test
  std::string schedule;  // Gantry's schedule
  int limit = 0;         // memory limit of Gantry's schedule / ranks; 0: none
  std::function<Schedule(int ranks, int microbatches, const Costs& costs)> make;
};

Schedule published_zero_bubble(int ranks, int microbatches, const Costs& costs, int limit) {
  const PublishedTimes times{costs.forward, costs.input_gradient, costs.weight_gradient, costs.hop};
  return PublishedZeroBubble(ranks, microbatches, times, limit * ranks).make();
}

int largest_peak(const Simulation& simulation) { return std::ranges::max(simulation.peak_activations); }

std::vector<Published> all_published() {
  return {
      {"v_min", "v_min", 0,
       [](int p, int m, const Costs&) { return BuildingBlocks(BuildingBlocks::Kind::kMin, p, m).make(); }},
      {"v_half", "v_half", 0,
       [](int p, int m, const Costs&) { return BuildingBlocks(BuildingBlocks::Kind::kHalf, p, m).make(); }},
      {"v_1f1b", "v_1f1b", 0,
       [](int p, int m, const Costs&) { return BuildingBlocks(BuildingBlocks::Kind::kFull, p, m).make(); }},
      {"zb_v", "zb_v", 0,
       [](int p, int m, const Costs& costs) {
         const PublishedTimes chunk{costs.forward / 2, costs.input_gradient / 2, costs.weight_gradient / 2, costs.hop};
         return PublishedZeroBubbleV(p, m, chunk, 2 * p).make();
       }},
      {"zb_auto_1p", "zb_auto", 1,
       [](int p, int m, const Costs& costs) { return published_zero_bubble(p, m, costs, 1); }},
      {"zb_auto_2p", "zb_auto", 2,
       [](int p, int m, const Costs& costs) { return published_zero_bubble(p, m, costs, 2); }}};
}

class AgainstTheAuthors : public ::testing::TestWithParam<Published> {};

// Unit times, and two rows of the zero-bubble paper's Table 9 in microseconds.
const std::vector<Costs> kTimes = {{1, 1, 1, 0}, {18522, 18086, 9337, 601}, {11347, 11248, 8132, 377}};

void compare(const Published& theirs, int ranks, int microbatches, const Costs& costs) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << microbatches << " microbatches, F " << costs.forward);
  const Schedule reference = theirs.make(ranks, microbatches, costs);
  const GeneratorOptions options{.memory_limit = static_cast<double>(theirs.limit) * ranks,
                                 .forward = costs.forward,
                                 .input_gradient = costs.input_gradient,
                                 .weight_gradient = costs.weight_gradient,
                                 .hop = costs.hop};
  const Schedule ours = generate(theirs.schedule, ranks, microbatches, 0, options);
  EXPECT_NO_THROW(validate(lower(ours)));
  const Simulation expected = simulate(reference, costs), found = simulate(ours, costs);
  const double rounding = 1e-9 * expected.makespan_global;
  EXPECT_LE(found.makespan_max_rank, expected.makespan_max_rank + rounding);
  EXPECT_LE(found.makespan_global, expected.makespan_global + rounding);
  EXPECT_LE(largest_peak(found), largest_peak(expected));
}

TEST_P(AgainstTheAuthors, NoLongerAtNoMoreMemory) {
  const bool all = std::getenv("GANTRY_LONG") != nullptr;
  const std::vector<int> sample = {2, 3, 5, 6, 8};
  for (int ranks = 2; ranks <= 16 && !HasFailure(); ++ranks)
    for (int microbatches = 1; microbatches <= 4 * ranks; ++microbatches) {
      const bool in_sample = std::ranges::count(sample, ranks) > 0 &&
                             (microbatches == 3 || microbatches == ranks || microbatches == 2 * ranks + 1);
      const bool is_large = ranks == 16 && microbatches == 24;
      if (!all && !in_sample && !is_large) continue;
      for (const Costs& costs : kTimes) compare(GetParam(), ranks, microbatches, costs);
    }
}

// The constructions in this test are the authors': the reference cases have the same orders.
TEST_P(AgainstTheAuthors, TheReferenceHasTheOrdersOfTheirs) {
  std::ifstream file(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/schedules/unit_cost.json");
  int compared = 0;
  for (const auto& expected : nlohmann::json::parse(file)) {
    if (expected["schedule"] != (GetParam().name == "zb_v" ? "zbv" : GetParam().name)) continue;
    const Schedule made = GetParam().make(expected["p"], expected["m"], {});
    for (int rank = 0; rank < made.ranks(); ++rank) {
      std::string text;
      for (const Action& action : made.actions[rank]) {
        const std::string kind = action.kind == ActionKind::kBackward        ? "BW"
                                 : action.kind == ActionKind::kInputGradient ? "B"
                                                                             : to_string(action.kind);
        text += (text.empty() ? "" : " ") + std::to_string(action.stage) + kind + std::to_string(action.microbatch);
      }
      EXPECT_EQ(text, expected["order"][rank]);
    }
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

INSTANTIATE_TEST_SUITE_P(Schedules, AgainstTheAuthors, ::testing::ValuesIn(all_published()),
                         [](const auto& published) { return published.param.name; });

// For p = 8, the authors' schedules take 37.5 and 61.5.
TEST(Published, VMinOfEightRanks) {
  EXPECT_LE(simulate(generate("v_min", 8, 8)).makespan_max_rank, 37.5);
  EXPECT_LE(simulate(generate("v_min", 8, 16)).makespan_max_rank, 61.5);
  EXPECT_LE(simulate(generate("v_half", 8, 16)).makespan_max_rank, 56.5);
}

// In these cases the authors' ZB-V holds more than 2 p activations. Every known order within 2 p is longer.
TEST(Published, ZbVIsNoLongerWhereWaitingWeightGradientsTakeItPastItsLimit) {
  const auto all = all_published();
  const Published& zb_v = *std::ranges::find(all, "zb_v", &Published::name);
  const Costs& costs = kTimes[2];
  EXPECT_EQ(largest_peak(simulate(zb_v.make(8, 12, costs), costs)), 17);
  for (const auto& [ranks, microbatches] : {std::pair(8, 12), {10, 12}, {10, 15}, {14, 18}})
    compare(zb_v, ranks, microbatches, costs);
}

// The unit of the times must not change how ties are broken.
TEST(Published, UnitsOfTimeDoNotMatter) {
  for (const char* name : {"zb_auto", "zb_v", "v_half"}) {
    const Schedule micro =
        generate(name, 6, 13, 0, {.forward = 18522, .input_gradient = 18086, .weight_gradient = 9337, .hop = 601});
    const Schedule milli =
        generate(name, 6, 13, 0, {.forward = 18.522, .input_gradient = 18.086, .weight_gradient = 9.337, .hop = 0.601});
    EXPECT_EQ(micro.actions, milli.actions) << name;
  }
}

TEST(FillSearch, NothingIsKeptThatIsLongerOrHoldsMore) {
  const Schedule placed = [] {
    Schedule empty = generate("zb_h1", 4, 12);
    for (auto& row : empty.actions) row.clear();
    return empty;
  }();
  const OrderOptions options{.limit = 4, .waiting_share = 0.5};
  const auto published = zb_heuristic(placed, options);
  ASSERT_TRUE(published);
  FillSearch search(options);
  search.begin_with(*published);
  search.try_finished(generate("zb_h2", 4, 12));  // shorter, with more activations
  EXPECT_EQ(search.best(), *published);
  search.try_finished(generate("gpipe", 4, 12));
  EXPECT_EQ(search.best(), *published);
}

// A search ends for any number of orders, because it limits the number of actions that it runs.
TEST(FillSearch, TriesABoundedNumberOfOrders) {
  const Schedule order = without_weights(generate("zb_h1", 16, 64));
  const std::size_t actions = 2 * 16 * 64;
  std::size_t tried = 0;
  const std::vector<std::function<Schedule()>> orders(100'000, [&] { return ++tried, order; });
  FillSearch search({.limit = 16});
  search.try_orders(orders);
  EXPECT_TRUE(search.exhausted());
  EXPECT_GT(tried, 10);
  EXPECT_LT(tried, 1000);
  EXPECT_LT(search.steps(), 2'000'000 + 12 * actions);
}

}  // namespace
}  // namespace gantry::schedule
