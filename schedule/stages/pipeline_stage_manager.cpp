#include "gantry/schedule/pipeline_stage_manager.h"

#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

std::vector<std::vector<int>> place_stages(int ranks, int chunks, StagePlacement placement) {
  if (ranks < 1 || chunks < 1)
    throw ConfigError({"pipeline", fmt::format("{} ranks with {} chunks", ranks, chunks), "at least 1 of each", ""});
  std::vector<std::vector<int>> stages(ranks);
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int rank = 0; rank < ranks; ++rank) {
      const bool back = placement == StagePlacement::kV && chunk % 2 == 1;
      stages[rank].push_back(chunk * ranks + (back ? ranks - 1 - rank : rank));
    }
  return stages;
}

}  // namespace

PipelineStageManager::PipelineStageManager(int pipeline_rank, int pipeline_size, int chunks, StagePlacement placement)
    : PipelineStageManager(pipeline_rank, place_stages(pipeline_size, chunks, placement)) {}

PipelineStageManager::PipelineStageManager(int pipeline_rank, const std::vector<std::vector<int>>& stages_of_rank)
    : rank_(pipeline_rank), stages_of_rank_(stages_of_rank) {
  const int ranks = static_cast<int>(stages_of_rank_.size());
  if (rank_ < 0 || rank_ >= ranks)
    throw ConfigError({"pipeline", fmt::format("rank {}", rank_), fmt::format("0 to {}", ranks - 1), ""});
  std::size_t count = 0;
  for (const auto& stages : stages_of_rank_) count += stages.size();
  rank_of_stage_.assign(count, -1);
  for (int rank = 0; rank < ranks; ++rank)
    for (const int stage : stages_of_rank_[rank]) {
      if (stage < 0 || stage >= static_cast<int>(count) || rank_of_stage_[stage] >= 0)
        throw ConfigError({"pipeline", fmt::format("rank {} has stage {}", rank, stage),
                           fmt::format("each of the stages 0 to {} once", count - 1), ""});
      rank_of_stage_[stage] = rank;
    }
}

int PipelineStageManager::rank_of(int stage) const {
  if (stage < 0 || stage >= num_stages())
    throw ConfigError({"pipeline", fmt::format("stage {}", stage), fmt::format("0 to {}", num_stages() - 1), ""});
  return rank_of_stage_[stage];
}

}  // namespace gantry
