// The search for the best layers per stage where layers differ and a rank holds several stages.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "gantry/core/layer_work.h"

namespace gantry {

// A distribution's figures. A stage is a range of layers; `cut` s is the first layer of stage s.
class StageWork {
 public:
  StageWork(const LayerWork& work, std::vector<int> rank_of_stage);

  int layers() const { return static_cast<int>(before_.size()) - 1; }
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  int ranks() const { return ranks_; }
  int rank_of(int stage) const { return rank_of_stage_[stage]; }
  double on_stage(int stage, int begin, int end) const { return before_[end] - before_[begin] + extra_[stage]; }
  double total() const { return total_; }
  // The fewest layers that a stage may have, and those of the stages [first, end).
  int least(int stage) const { return least(stage, stage + 1); }
  int least(int first, int end) const { return least_before_[end] - least_before_[first]; }

 private:
  std::vector<int> rank_of_stage_;
  int ranks_;
  std::vector<double> before_;     // the work of the first n layers
  std::vector<double> extra_;      // of a stage, beside its layers
  std::vector<int> least_before_;  // of the first n stages
  double total_;
};

// The layers of each stage whose heaviest rank (or heaviest stage, for kStage) is lightest, among those where no rank
// and no stage has more than the bounds.
enum class Lightest { kRank, kStage };
struct StageSearch {
  Lightest what = Lightest::kRank;
  double most_on_rank = std::numeric_limits<double>::infinity();
  double most_on_stage = std::numeric_limits<double>::infinity();
  // Cuts are moved by at most `reach` layers from where these counts have them; empty: they may lie anywhere.
  std::vector<int> around;
  int reach = 0;
};

// Nothing where there is no such way, or where it would take more than `steps`, of which it takes what it needs: they
// are then negative. Ranks are taken one after the other, each with all its stages. What matters of those before is
// where the cuts between their stages and the others' lie, so of all ways to the same cuts the best alone is kept.
std::optional<std::vector<int>> search_stages(const StageWork& work, const StageSearch& search, std::int64_t& steps);

}  // namespace gantry
