#include "gantry/plugins/model_state.h"

#include "gantry/plugins/replica_audit.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/schedule/validate.h"

namespace gantry {

schedule::Executor& ModelState::executor_for(int microbatches, bool forward_only,
                                             std::optional<schedule::Gather> gather) {
  const std::tuple key{microbatches, forward_only, gather};
  if (const auto found = executors.find(key); found != executors.end()) return *found->second;
  auto made = schedules->make(microbatches);
  if (forward_only) made = schedule::forward_only(made);
  if (gather) made = schedule::with_parameter_actions(made, *gather);
  if (!forward_only) made = schedule::with_offload_actions(made, plugin->options.devices.offload);
  auto lowered = schedule::lower(made);
  schedule::validate(lowered);
  auto executor =
      std::make_unique<schedule::Executor>(std::move(lowered), plugin->stages.pipeline_rank(), plugin->link);
  return *executors.emplace(key, std::move(executor)).first->second;
}

StepEnd ModelState::end_of_step(bool aborted) {
  return {.counted = static_cast<double>(accumulation->counted()),
          .aborted = aborted,
          .unsent = accumulation->gradients().has_unsent()};
}

void ModelState::finish_gradients(const StepEnd& end) {
  routers->sync();
  accumulation->finish(end.counted, end.unsent);
}

void ModelState::audit_when_due() {
  const int every = plugin->options.update.audit_every;
  if (every > 0 && (accumulation->step() + 1) % every == 0) audit();
}

void ModelState::audit() {
  if (!optimizer) return;
  optimizer->wait();
  optimizer->gradients().complete();
  model->materialize_shard();
  audit_replicas(optimizer->gradients(), plugin->mesh, plugin->stages);
}

}  // namespace gantry
