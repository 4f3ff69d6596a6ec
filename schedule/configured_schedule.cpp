#include "gantry/schedule/configured_schedule.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/schedule_choice.h"
#include "gantry/core/schedule_names.h"
#include "gantry/schedule/validate.h"

namespace gantry {
namespace {

schedule::Schedule load_for(const ScheduleConfig& config, int pipeline) {
  auto file = schedule::compute_only(schedule::load_csv(config.name));
  schedule::validate(file);
  if (file.ranks() != pipeline)
    throw ConfigError({"schedule.name: " + config.name, fmt::format("is for {} ranks", file.ranks()),
                       fmt::format("parallel.pipeline {} of them", pipeline), "change one of the two"});
  if (config.microbatches && *config.microbatches != file.microbatches)
    throw ConfigError({"schedule.microbatches",
                       fmt::format("{}, but {} has {}", *config.microbatches, config.name, file.microbatches),
                       "the file's number", "leave it out"});
  return file;
}

}  // namespace

ScheduleSource::ScheduleSource(const ScheduleConfig& config, int pipeline) : config_(config), pipeline_(pipeline) {
  if (is_schedule_file(config_.name)) {
    file_ = load_for(config_, pipeline_);
    stages_of_rank_ = file_->stages_of_rank;
  } else {
    stages_of_rank_ = make(1).stages_of_rank;
  }
}

int ScheduleSource::microbatches(int stages, std::int64_t replica_samples) const {
  ScheduleConfig config = config_;
  if (file_ && !config.microbatches) config.microbatches = file_->microbatches;
  return microbatch_count(config, stages, replica_samples);
}

schedule::Schedule ScheduleSource::make(int microbatches) const {
  if (file_) return schedule::first_microbatches(*file_, microbatches);
  return schedule::generate(config_.name, pipeline_, microbatches, chunks_of(config_),
                            {.group_size = config_.group_size});
}

}  // namespace gantry
