// The stages of a pipeline rank, its neighbours, and the layers of each stage. Pure arithmetic.
#pragma once

#include <string>
#include <vector>

#include "gantry/core/layout_string.h"

namespace gantry {

// How the stages are placed on ranks with several chunks.
enum class StagePlacement {
  kLoop,  // chunk c of rank r is stage c * ranks + r
  kV,     // odd chunks are placed in reverse: with two chunks, rank r has stages r and 2 * ranks - 1 - r
};

// A half-open range of layers.
struct LayerRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool contains(int layer) const { return layer >= begin && layer < end; }
};

// The placement of stages on pipeline ranks, as one rank sees it. Functions throw ConfigError for a rank or stage that
// does not exist.
class PipelineStageManager {
 public:
  PipelineStageManager(int pipeline_rank, int pipeline_size, int chunks = 1,
                       StagePlacement placement = StagePlacement::kLoop);
  // An explicit placement: stages_of_rank[r] lists the stages of rank r. Throws ConfigError unless every stage occurs
  // exactly once.
  PipelineStageManager(int pipeline_rank, const std::vector<std::vector<int>>& stages_of_rank);

  int pipeline_rank() const { return rank_; }
  int pipeline_size() const { return static_cast<int>(stages_of_rank_.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage_.size()); }
  int num_chunks() const { return static_cast<int>(stages().size()); }
  const std::vector<int>& stages() const { return stages_of_rank_[rank_]; }  // stages of this rank, in chunk order
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

// Returns the number of layers of each stage. The middle stages get the remainder: (10, 4) -> 2 3 3 2, (9, 4) -> 2 2 3
// 2, (30, 4) -> 7 8 8 7. This is ColossalAI's rule. Throws ConfigError if there are more stages than layers.
std::vector<int> distribute_layers(int layers, int stages);

// Converts counts to half-open ranges. Throws ConfigError unless there is one count for each stage and their sum is
// `layers`.
std::vector<LayerRange> layer_ranges(const std::vector<int>& layers_of_stage, int layers, int stages);

}  // namespace gantry
