// Which stages a pipeline rank holds, who its neighbours are, and which layers each stage has. Pure arithmetic.
#pragma once

#include <string>
#include <vector>

namespace gantry {

enum class StagePlacement {
  kLoop,  // chunk c of rank r is stage c * ranks + r
  kV,     // chunks go forth and back: stages r and 2 * ranks - 1 - r
};

struct LayerRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool contains(int layer) const { return layer >= begin && layer < end; }
};

class PipelineStageManager {
 public:
  PipelineStageManager(int pipeline_rank, int pipeline_size, int chunks = 1,
                       StagePlacement placement = StagePlacement::kLoop);
  // A placement stated by hand: stages_of_rank[r] lists the stages of rank r. Every stage exactly once; else
  // ConfigError.
  PipelineStageManager(int pipeline_rank, const std::vector<std::vector<int>>& stages_of_rank);

  int pipeline_rank() const { return rank_; }
  int pipeline_size() const { return static_cast<int>(stages_of_rank_.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage_.size()); }
  int num_chunks() const { return static_cast<int>(stages().size()); }
  const std::vector<int>& stages() const { return stages_of_rank_[rank_]; }  // this rank's, in chunk order
  int rank_of(int stage) const;
  bool holds(int stage) const { return rank_of(stage) == rank_; }
  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage == num_stages() - 1; }
  bool holds_first() const { return holds(0); }
  bool holds_last() const { return holds(num_stages() - 1); }

 private:
  int rank_;
  std::vector<std::vector<int>> stages_of_rank_;
  std::vector<int> rank_of_stage_;
};

// Layers per stage; the remainder goes to the middle: (10, 4) -> 2 3 3 2, (9, 4) -> 2 2 3 2, (30, 4) -> 7 8 8 7.
// ConfigError when there are more stages than layers. ColossalAI's rule.
std::vector<int> distribute_layers(int layers, int stages);

// Megatron's layout string: stages separated by '|', E embedding, t layer, m multi-token head (refused), L loss; "t*3",
// "(tt|)*29" repeat; commas are ignored. Gives the layers of each stage. ConfigError with the position of the fault, 1
// at the first character.
std::vector<int> parse_layout_string(const std::string& text, const std::string& where = "schedule.layers");

// Half-open ranges from counts; ConfigError unless the counts add up to `layers` and there is one for each stage.
std::vector<LayerRange> layer_ranges(const std::vector<int>& layers_of_stage, int layers, int stages);

}  // namespace gantry
