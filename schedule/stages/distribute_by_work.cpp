#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "gantry/core/error.h"
#include "gantry/schedule/layer_work.h"
#include "gantry/schedule/stages/stage_search.h"

namespace gantry {
namespace {

// Two sums of work that differ by no more than this are equal.
constexpr double kSameWork = 1e-12;
constexpr double kNoBound = std::numeric_limits<double>::infinity();
// Step limit of each of the two searches, about a quarter of a second.
constexpr std::int64_t kMostSteps = 5'000'000;

void require_work(const LayerWork& work) {
  for (std::size_t layer = 0; layer < work.layers.size(); ++layer)
    if (!std::isfinite(work.layers[layer]) || work.layers[layer] < 0)
      throw ConfigError({"schedule.layers", fmt::format("layer {} has {} of work", layer, work.layers[layer]),
                         "a number of at least 0", "see ModelSplit::work of the model's policy"});
  for (const auto& [stage, extra] : {std::pair("first", work.first), std::pair("last", work.last)})
    if (!std::isfinite(extra) || extra < 0)
      throw ConfigError({"schedule.layers",
                         fmt::format("the {} stage has {} of work in addition to its layers", stage, extra),
                         "a number of at least 0", "see ModelSplit::work of the model's policy"});
}

void require_layers(const StageWork& work) {
  const int needed = work.least(0, work.stages());
  if (needed > work.layers())
    throw ConfigError({"schedule.layers",
                       fmt::format("{} layers over {} stages leaves {} stages empty", work.layers(), work.stages(),
                                   needed - work.layers()),
                       "at least one layer per stage",
                       fmt::format("use at most {} stages, or a list with empty stages", work.layers())});
}

struct Heaviest {
  double rank = 0, stage = 0;
};

Heaviest heaviest_of(const StageWork& work, const std::vector<int>& counts) {
  Heaviest heaviest;
  std::vector<double> on_rank(work.ranks(), 0);
  int begin = 0;
  for (int stage = 0; stage < work.stages(); ++stage) {
    const double here = work.on_stage(stage, begin, begin + counts[stage]);
    begin += counts[stage];
    heaviest.stage = std::max(heaviest.stage, here);
    heaviest.rank = std::max(heaviest.rank, on_rank[work.rank_of(stage)] += here);
  }
  return heaviest;
}

// Distributes equal layers. Each layer goes to the rank with the least work, and within the rank to the stage with the
// least work, as far as the bounds allow. Ties go to the later stage, which holds fewer activations. Returns nothing if
// the bounds allow no distribution.
std::optional<std::vector<int>> place_equal(const StageWork& work, const Heaviest& bounds) {
  const int stages = work.stages();
  std::vector<int> counts;
  std::vector<double> on_stage, on_rank(work.ranks(), 0);
  for (int stage = 0; stage < stages; ++stage) {
    counts.push_back(work.least(stage));
    on_stage.push_back(work.on_stage(stage, 0, counts.back()));
    on_rank[work.rank_of(stage)] += on_stage.back();
  }
  const double layer = work.on_stage(0, 0, 1) - work.on_stage(0, 0, 0);
  for (int left = work.layers() - std::accumulate(counts.begin(), counts.end(), 0); left > 0; --left) {
    int best = -1;
    for (int stage = stages; stage-- > 0;) {
      const auto figures = [&](int s) { return std::pair(on_rank[work.rank_of(s)], on_stage[s]); };
      const auto [rank, here] = figures(stage);
      if (rank + layer > bounds.rank || here + layer > bounds.stage) continue;
      if (best < 0 || figures(stage) < figures(best)) best = stage;
    }
    if (best < 0) return std::nullopt;
    ++counts[best];
    on_stage[best] += layer;
    on_rank[work.rank_of(best)] += layer;
  }
  return counts;
}

// Fallback if a layer may be on any stage: moves layers away from the heaviest stage as long as that helps.
std::vector<int> distribute_equal(const StageWork& work) {
  std::vector<int> counts = *place_equal(work, {kNoBound, kNoBound});
  for (;;) {
    const Heaviest heaviest = heaviest_of(work, counts);
    auto lighter = place_equal(work, {heaviest.rank * (1 + kSameWork), heaviest.stage * (1 - kSameWork)});
    if (!lighter || heaviest_of(work, *lighter).stage >= heaviest.stage) return counts;
    counts = std::move(*lighter);
  }
}

// The partition into contiguous stages whose heaviest stage is lightest: best[s][n] is the result for the first n
// layers on s stages.
std::vector<int> distribute_stages(const StageWork& work) {
  const int layers = work.layers(), stages = work.stages();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, kNoBound));
  std::vector<std::vector<int>> begin(stages + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = 0;
  for (int stage = 0; stage < stages; ++stage)
    for (int end = 0; end <= layers; ++end)
      for (int from = 0; from + work.least(stage) <= end; ++from) {
        const double heaviest = std::max(best[stage][from], work.on_stage(stage, from, end));
        if (heaviest < best[stage + 1][end]) best[stage + 1][end] = heaviest, begin[stage + 1][end] = from;
      }
  std::vector<int> counts(stages);
  for (int stage = stages, end = layers; stage-- > 0;) {
    counts[stage] = end - begin[stage + 1][end];
    end = begin[stage + 1][end];
  }
  return counts;
}

// Searches near the counts first, then farther away and everywhere, as long as steps are left. Each result is a bound
// for the following searches.
void improve(const StageWork& work, Lightest what, std::vector<int>& counts, std::int64_t steps) {
  for (const int reach : {1, 2, 4, work.layers()})
    for (;;) {
      const Heaviest heaviest = heaviest_of(work, counts);
      StageSearch search{.what = what, .around = counts, .reach = reach};
      if (what == Lightest::kRank) {
        search.most_on_rank = heaviest.rank * (1 - kSameWork);
      } else {
        search.most_on_rank = heaviest.rank * (1 + kSameWork);
        search.most_on_stage = heaviest.stage * (1 - kSameWork);
      }
      auto found = search_stages(work, search, steps);
      if (!found) break;
      counts = std::move(*found);
    }
}

std::vector<int> distribute_unequal(const StageWork& work) {
  std::vector<int> counts = distribute_stages(work);
  improve(work, Lightest::kRank, counts, kMostSteps);
  improve(work, Lightest::kStage, counts, kMostSteps);
  return counts;
}

}  // namespace

std::vector<int> distribute_by_work(const LayerWork& work, const std::vector<int>& rank_of_stage) {
  if (rank_of_stage.empty()) throw ConfigError({"schedule.layers", "0 stages", "at least 1", ""});
  require_work(work);
  const StageWork stages(work, rank_of_stage);
  require_layers(stages);
  const bool equal = std::ranges::adjacent_find(work.layers, std::not_equal_to<>()) == work.layers.end();
  if (equal) return distribute_equal(stages);
  const bool one_each = std::set<int>(rank_of_stage.begin(), rank_of_stage.end()).size() == rank_of_stage.size();
  return one_each ? distribute_stages(stages) : distribute_unequal(stages);
}

}  // namespace gantry
