#include "gantry/schedule/generators/v_placement.h"

#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry::schedule {

Schedule empty_v_schedule(const std::string& name, const PipelineSizes& sizes) {
  if (sizes.chunks != 2)
    throw ConfigError({"schedule " + name, fmt::format("{} chunks per rank", sizes.chunks),
                       "2 chunks, because the stages pass through the ranks in both directions",
                       "remove the number of chunks"});
  Schedule schedule;
  schedule.name = name;
  schedule.microbatches = sizes.microbatches;
  schedule.actions.resize(sizes.ranks);
  for (int rank = 0; rank < sizes.ranks; ++rank) schedule.stages_of_rank.push_back({rank, 2 * sizes.ranks - 1 - rank});
  return schedule;
}

}  // namespace gantry::schedule
