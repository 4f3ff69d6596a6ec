#include "gantry/schedule/stages/layers_per_stage.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <string>
#include <variant>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/error.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/stages/measured_work.h"

namespace gantry {
namespace {

// The work with all layers of multi-token prediction as one layer, because they are not partitioned over stages.
LayerWork with_joined_mtp(LayerWork work) {
  if (work.mtp < 2) return work;
  const auto first = work.layers.end() - work.mtp;
  *first = std::accumulate(first, work.layers.end(), 0.0);
  work.layers.erase(first + 1, work.layers.end());
  return work;
}

// The number of layers of each stage from those of with_joined_mtp().
std::vector<int> with_all_mtp(std::vector<int> layers_of_stage, int mtp) {
  const auto last = std::find_if(layers_of_stage.rbegin(), layers_of_stage.rend(), [](int count) { return count > 0; });
  if (mtp > 1 && last != layers_of_stage.rend()) *last += mtp - 1;
  return layers_of_stage;
}

std::vector<int> parsed_layers(const std::string& text, int mtp) {
  LayoutString layout = parse_layout_string(text);
  if (layout.mtp == mtp) return std::move(layout.layers);
  throw ConfigError(
      {"schedule.layers",
       fmt::format("'{}' has {} layers of multi-token prediction 'm', but the model has {}", text, layout.mtp, mtp),
       fmt::format("{} times m", mtp),
       mtp > 0 ? "list every layer of multi-token prediction"
               : "remove m, or set model.config.mtp_loss_scaling_factor of a model with such layers"});
}

}  // namespace

LayerWork weighed_work(const ScheduleOptions& schedule, const LayerWork& work) {
  const auto run = measured_run(schedule);
  if (!run) return work;
  LayerWork measured = read_measured_work(*run);
  if (measured.layers.size() != work.layers.size())
    throw ConfigError({"schedule.layers",
                       fmt::format("the run in {} has measured {} layers, but the model has {}", *run,
                                   measured.layers.size(), work.layers.size()),
                       "a run of a model with the same number of layers", "use another run, or `balanced` alone"});
  measured.mtp = work.mtp;
  return measured;
}

std::vector<int> layers_per_stage(const ScheduleOptions& schedule, const LayerWork& work,
                                  const std::vector<int>& rank_of_stage) {
  if (const auto* list = std::get_if<std::vector<int>>(&schedule.layers)) return *list;
  const auto& name = std::get<std::string>(schedule.layers);
  if (name == "default") {
    const auto layers = static_cast<int>(with_joined_mtp(work).layers.size());
    return with_all_mtp(distribute_layers(layers, static_cast<int>(rank_of_stage.size())), work.mtp);
  }
  if (is_balanced(schedule))
    return with_all_mtp(distribute_by_work(with_joined_mtp(weighed_work(schedule, work)), rank_of_stage), work.mtp);
  return parsed_layers(name, work.mtp);
}

}  // namespace gantry
