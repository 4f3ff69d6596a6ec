// Searches the best number of layers per stage if layers have different work and a rank holds several stages.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "gantry/schedule/layer_work.h"

namespace gantry {

// The sums of a distribution. A stage is a range of layers; boundary s is the first layer of stage s.
class StageWork {
 public:
  StageWork(const LayerWork& work, std::vector<int> rank_of_stage);

  int layers() const { return static_cast<int>(before_.size()) - 1; }
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  int ranks() const { return ranks_; }
  int rank_of(int stage) const { return rank_of_stage_[stage]; }
  double on_stage(int stage, int begin, int end) const { return before_[end] - before_[begin] + extra_[stage]; }
  double total() const { return total_; }
  // The minimum number of layers of a stage, and the minimum work of the stages [first, end).
  int least(int stage) const { return least(stage, stage + 1); }
  int least(int first, int end) const { return least_before_[end] - least_before_[first]; }

 private:
  std::vector<int> rank_of_stage_;
  int ranks_;
  std::vector<double> before_;     // work of the first n layers
  std::vector<double> extra_;      // work of a stage in addition to its layers
  std::vector<int> least_before_;  // additional work of the first n stages
  double total_;
};

// Finds the layers of each stage for which the heaviest rank (or the heaviest stage, for kStage) is lightest, among the
// distributions in which no rank and no stage exceeds the bounds.
enum class Lightest { kRank, kStage };
struct StageSearch {
  Lightest what = Lightest::kRank;
  double most_on_rank = std::numeric_limits<double>::infinity();
  double most_on_stage = std::numeric_limits<double>::infinity();
  // Boundaries may differ by at most `reach` layers from those of these counts; empty: they may be anywhere.
  std::vector<int> around;
  int reach = 0;
};

// Returns nothing if there is no such distribution, or if the search would take more than `steps`. Subtracts the steps
// that it takes from `steps`, which is negative if they did not suffice. Ranks are processed one after the other, each
// with all its stages. Later ranks depend only on the boundaries between processed and other stages, so only the best
// of all distributions with the same boundaries is kept.
std::optional<std::vector<int>> search_stages(const StageWork& work, const StageSearch& search, std::int64_t& steps);

}  // namespace gantry
