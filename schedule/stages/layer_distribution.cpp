#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "gantry/core/base/number_text.h"
#include "gantry/core/error.h"
#include "gantry/schedule/pipeline_stage_manager.h"

namespace gantry {
namespace {

void require_enough_layers(int layers, int stages) {
  if (stages < 1) throw ConfigError({"schedule.layers", fmt::format("{} stages", stages), "at least 1", ""});
  if (stages > layers) {
    throw ConfigError({"schedule.layers",
                       fmt::format("{} layers over {} stages leaves {} stages empty", layers, stages, stages - layers),
                       "at least one layer per stage",
                       fmt::format("use at most {} stages, or a list with empty stages", layers)});
  }
}

}  // namespace

std::vector<int> distribute_layers(int layers, int stages) {
  require_enough_layers(layers, stages);
  std::vector<int> counts(stages, layers / stages);
  const int remainder = layers % stages;
  const int start = stages / 2 - remainder / 2;
  for (int i = 0; i < remainder; ++i) ++counts[start + i];
  return counts;
}

std::vector<LayerRange> layer_ranges(const std::vector<int>& layers_of_stage, int layers, int stages) {
  const int total = std::accumulate(layers_of_stage.begin(), layers_of_stage.end(), 0);
  if (static_cast<int>(layers_of_stage.size()) != stages || total != layers) {
    throw ConfigError(
        {"schedule.layers",
         fmt::format("{} with {} in all ({})", quantity(static_cast<std::int64_t>(layers_of_stage.size()), "stage"),
                     quantity(total, "layer"), fmt::join(layers_of_stage, " + ")),
         fmt::format("{} with {}", quantity(stages, "stage"), quantity(layers, "layer")),
         "every layer in exactly one stage"});
  }
  std::vector<LayerRange> ranges;
  int begin = 0;
  for (const int count : layers_of_stage) {
    if (count < 0) throw ConfigError({"schedule.layers", fmt::format("{} layers", count), "counts of at least 0", ""});
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

}  // namespace gantry
