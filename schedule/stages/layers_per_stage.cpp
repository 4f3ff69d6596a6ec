#include "gantry/schedule/stages/layers_per_stage.h"

#include <fmt/format.h>
#include <string>
#include <variant>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/error.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/stages/measured_work.h"

namespace gantry {

LayerWork weighed_work(const ScheduleOptions& schedule, const LayerWork& work) {
  const auto run = measured_run(schedule);
  if (!run) return work;
  LayerWork measured = read_measured_work(*run);
  if (measured.layers.size() != work.layers.size())
    throw ConfigError({"schedule.layers",
                       fmt::format("the run in {} has measured {} layers, but the model has {}", *run,
                                   measured.layers.size(), work.layers.size()),
                       "a run of a model with the same number of layers", "use another run, or `balanced` alone"});
  return measured;
}

std::vector<int> layers_per_stage(const ScheduleOptions& schedule, const LayerWork& work,
                                  const std::vector<int>& rank_of_stage) {
  if (const auto* list = std::get_if<std::vector<int>>(&schedule.layers)) return *list;
  const auto& name = std::get<std::string>(schedule.layers);
  if (name == "default")
    return distribute_layers(static_cast<int>(work.layers.size()), static_cast<int>(rank_of_stage.size()));
  if (is_balanced(schedule)) return distribute_by_work(weighed_work(schedule, work), rank_of_stage);
  return parse_layout_string(name);
}

}  // namespace gantry
