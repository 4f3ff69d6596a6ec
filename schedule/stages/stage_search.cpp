#include "gantry/schedule/stages/stage_search.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

namespace gantry {
namespace {

constexpr double kRounding = 1e-12;
// Costs of a kept state and of a tried position, in steps.
constexpr std::int64_t kStepsOfWay = 8;

class RankByRank {
 public:
  RankByRank(const StageWork& work, const StageSearch& search, std::int64_t& steps);
  std::optional<std::vector<int>> run();

 private:
  // A boundary that is chosen when its rank is processed. The adjacent boundaries are already known.
  struct Boundary {
    int index, below, above;
    std::vector<int> stages;  // the other boundaries of the stage pair
    bool from_above;          // from there downward the work of the stages increases; otherwise upward from below
    bool may_stop;            // first position with too much work
  };
  struct RankStep {
    std::vector<int> stages;           // boundaries that earlier ranks have chosen
    std::vector<Boundary> boundaries;  // boundaries to choose, ascending
    std::vector<int> frontier;         // boundaries between stages of processed ranks and of other ranks
    std::vector<int> inner;  // chosen boundaries that are not in the frontier: between two stages of this rank
  };
  // The best distribution that leads to a frontier.
  struct Way {
    double heaviest;
    double taken;  // work
    std::uint64_t from, inner;
  };
  using Ways = std::unordered_map<std::uint64_t, Way>;
  struct Load {
    double sum = 0, heaviest = 0;
  };

  void plan_steps();
  bool fits() const;
  bool add_stages(const std::vector<int>& stages, Load& load) const;
  void choose(const RankStep& step, std::size_t index, Load load);
  void keep(const RankStep& step, const Load& load);
  std::uint64_t pack(const std::vector<int>& boundaries) const;
  void unpack(const std::vector<int>& boundaries, std::uint64_t packed);
  std::vector<int> counts();

  const StageWork& work_;
  const StageSearch& search_;
  std::int64_t& steps_left_;
  const int bits_;                     // index of a boundary's position
  std::vector<int> lowest_, highest_;  // position of each boundary
  std::vector<RankStep> steps_;
  std::vector<Ways> ways_;  // frontier after each step
  std::vector<int> at_;     // position of each boundary
  // The distribution that is being extended.
  std::uint64_t from_ = 0;
  Way way_{};
};

RankByRank::RankByRank(const StageWork& work, const StageSearch& search, std::int64_t& steps)
    : work_(work),
      search_(search),
      steps_left_(steps),
      bits_(static_cast<int>(std::bit_width(static_cast<unsigned>(work.layers())))),
      lowest_(work.stages() + 1, 0),
      highest_(work.stages() + 1, work.layers()),
      at_(work.stages() + 1, 0) {
  at_.back() = work.layers();
  for (int stage = 0, boundary = 0; stage < static_cast<int>(search.around.size()); ++stage) {
    boundary += search.around[stage];
    lowest_[stage + 1] = boundary - search.reach;
    highest_[stage + 1] = boundary + search.reach;
  }
  plan_steps();
}

void RankByRank::plan_steps() {
  const int stages = work_.stages();
  std::vector<char> taken(stages, 0);
  std::set<int> chosen = {0, stages};
  for (int rank = 0; rank < work_.ranks(); ++rank) {
    RankStep step;
    auto complete = [&](int stage) {
      return stage >= 0 && stage < stages && work_.rank_of(stage) == rank && chosen.contains(stage) &&
             chosen.contains(stage + 1);
    };
    for (int stage = 0; stage < stages; ++stage) {
      if (work_.rank_of(stage) != rank) continue;
      taken[stage] = 1;
      if (complete(stage)) step.stages.push_back(stage);
    }
    for (int boundary = 1; boundary < stages; ++boundary) {
      if (chosen.contains(boundary) || (work_.rank_of(boundary - 1) != rank && work_.rank_of(boundary) != rank))
        continue;
      const auto above = chosen.upper_bound(boundary);
      Boundary next{boundary, *std::prev(above), *above, {}, false, true};
      chosen.insert(boundary);
      for (const int stage : {boundary - 1, boundary})
        if (complete(stage)) next.stages.push_back(stage);
      next.from_above = next.stages == std::vector<int>{boundary};
      next.may_stop = next.stages.size() == 1;
      step.boundaries.push_back(std::move(next));
    }
    for (int boundary = 1; boundary < stages; ++boundary)
      if (taken[boundary - 1] != taken[boundary]) step.frontier.push_back(boundary);
    for (const Boundary& boundary : step.boundaries)
      if (taken[boundary.index - 1] && taken[boundary.index]) step.inner.push_back(boundary.index);
    steps_.push_back(std::move(step));
  }
}

// Whether the key of every frontier fits into one integer.
bool RankByRank::fits() const {
  return std::ranges::all_of(steps_, [&](const RankStep& step) {
    return std::max(step.frontier.size(), step.inner.size()) * static_cast<std::size_t>(bits_) <= 64;
  });
}

std::uint64_t RankByRank::pack(const std::vector<int>& boundaries) const {
  std::uint64_t packed = 0;
  for (const int boundary : boundaries) packed = packed << bits_ | static_cast<std::uint64_t>(at_[boundary]);
  return packed;
}

void RankByRank::unpack(const std::vector<int>& boundaries, std::uint64_t packed) {
  const std::uint64_t mask = (std::uint64_t{1} << bits_) - 1;
  for (std::size_t i = boundaries.size(); i-- > 0; packed >>= bits_)
    at_[boundaries[i]] = static_cast<int>(packed & mask);
}

// Returns false if the limit would be exceeded.
bool RankByRank::add_stages(const std::vector<int>& stages, Load& load) const {
  for (const int stage : stages) {
    const double here = work_.on_stage(stage, at_[stage], at_[stage + 1]);
    load.sum += here;
    load.heaviest = std::max(load.heaviest, here);
  }
  return load.sum <= search_.most_on_rank && load.heaviest <= search_.most_on_stage;
}

void RankByRank::choose(const RankStep& step, std::size_t index, Load load) {
  if (index == step.boundaries.size()) return keep(step, load);
  const Boundary& boundary = step.boundaries[index];
  const int lowest =
      std::max(at_[boundary.below] + work_.least(boundary.below, boundary.index), lowest_[boundary.index]);
  const int highest =
      std::min(at_[boundary.above] - work_.least(boundary.index, boundary.above), highest_[boundary.index]);
  for (int i = 0; i <= highest - lowest && steps_left_ >= 0; ++i, --steps_left_) {
    at_[boundary.index] = boundary.from_above ? highest - i : lowest + i;
    Load more = load;
    if (add_stages(boundary.stages, more))
      choose(step, index + 1, more);
    else if (boundary.may_stop)
      break;
  }
}

void RankByRank::keep(const RankStep& step, const Load& load) {
  const double taken = way_.taken + load.sum;
  const auto ranks_left = static_cast<double>(&steps_.back() - &step);
  if (work_.total() - taken > ranks_left * search_.most_on_rank + kRounding * work_.total()) return;
  const double heaviest = search_.what == Lightest::kRank ? load.sum : load.heaviest;
  const Way way{std::max(way_.heaviest, heaviest), taken, from_, pack(step.inner)};
  const auto [found, is_new] = ways_.back().try_emplace(pack(step.frontier), way);
  if (is_new) steps_left_ -= kStepsOfWay;
  // Ties are broken by the boundaries, so that the order of a hash table has no influence.
  auto figures = [](const Way& each) { return std::tuple(each.heaviest, each.from, each.inner); };
  if (figures(way) < figures(found->second)) found->second = way;
}

std::vector<int> RankByRank::counts() {
  std::uint64_t packed = 0;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    unpack(steps_[i].frontier, packed);
    const Way& way = ways_[i + 1].at(packed);
    unpack(steps_[i].inner, way.inner);
    packed = way.from;
  }
  std::vector<int> counts(work_.stages());
  std::adjacent_difference(at_.begin() + 1, at_.end(), counts.begin());
  return counts;
}

std::optional<std::vector<int>> RankByRank::run() {
  if (!fits()) steps_left_ = -1;
  ways_.reserve(steps_.size() + 1);
  ways_.push_back({{0, Way{}}});
  for (std::size_t i = 0; i < steps_.size() && steps_left_ >= 0; ++i) {
    const Ways& before = ways_.back();
    ways_.emplace_back();
    for (const auto& [packed, way] : before) {
      if (i > 0) unpack(steps_[i - 1].frontier, packed);
      from_ = packed;
      way_ = way;
      Load load;
      if (add_stages(steps_[i].stages, load)) choose(steps_[i], 0, load);
    }
  }
  if (steps_left_ < 0 || ways_.back().empty()) return std::nullopt;
  return counts();
}

}  // namespace

StageWork::StageWork(const LayerWork& work, std::vector<int> rank_of_stage)
    : rank_of_stage_(std::move(rank_of_stage)),
      ranks_(std::ranges::max(rank_of_stage_) + 1),
      before_(work.layers.size() + 1, 0),
      extra_(rank_of_stage_.size(), 0),
      least_before_(1, 0) {
  std::partial_sum(work.layers.begin(), work.layers.end(), before_.begin() + 1);
  extra_.front() += work.first;
  extra_.back() += work.last;
  for (int stage = 0; stage < stages(); ++stage) {
    const bool may_be_empty = stage > 0 && stage + 1 == stages() && work.last > 0;
    least_before_.push_back(least_before_.back() + (may_be_empty ? 0 : 1));
  }
  total_ = before_.back() + work.first + work.last;
}

std::optional<std::vector<int>> search_stages(const StageWork& work, const StageSearch& search, std::int64_t& steps) {
  return RankByRank(work, search, steps).run();
}

}  // namespace gantry
