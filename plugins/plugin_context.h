// The parts that all models of one plugin share. Handles of boosted models own them too, so that they can outlive the
// plugin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/pipeline/action_times.h"
#include "gantry/pipeline/stage_link.h"
#include "gantry/plugins/parallel_options.h"
#include "gantry/plugins/plugin.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry {

struct PluginContext {
  // Creates the process groups. Throws ConfigError like check() and ScheduleSource. Collective over the world. The
  // world must outlive this object.
  PluginContext(World& world, ParallelOptions options);

  // Passes the times of the step's actions to the observer, if there is one.
  void report_times();

  World& world;
  const ParallelOptions options;
  ProcessGroupMesh mesh;
  const ScheduleSource schedules;  // for models whose stages compute embedding and head
  const PipelineStageManager stages;
  StageLink link;
  const std::int64_t logit_limit;             // the default for the device of this rank (nn/logit_limit.h)
  std::unique_ptr<ProcessGroup> layer_group;  // the ranks that compute layers together; null: those of tp
  Plugin::ActionObserver observer;
  std::unique_ptr<schedule::ActionTimes> times;                    // null without an observer
  schedule::ForwardTimes forward_times;                            // times of the last training step with an observer
  std::shared_ptr<int> no_sync_guards = std::make_shared<int>(0);  // for all models
  std::function<void()> before_first_step;                         // called once, before the first training step
};

}  // namespace gantry
