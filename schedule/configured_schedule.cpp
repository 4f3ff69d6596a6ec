#include "gantry/schedule/configured_schedule.h"

#include <fmt/format.h>
#include <numeric>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/config/schedule_names.h"
#include "gantry/core/error.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/validate.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry {
namespace {

schedule::Schedule load_for(const ScheduleOptions& config, int pipeline) {
  const auto read = schedule::load_csv(config.name);
  schedule::validate(read);
  const auto file = schedule::compute_only(read);  // training adds the other actions itself
  if (file.ranks() != pipeline)
    throw ConfigError({"schedule.name: " + config.name, fmt::format("the schedule has {} ranks", file.ranks()),
                       fmt::format("parallel.pipeline of {}", pipeline), "change one of the two"});
  if (config.microbatches && *config.microbatches != file.microbatches)
    throw ConfigError(
        {"schedule.microbatches",
         fmt::format("{} microbatches, but {} has {}", *config.microbatches, config.name, file.microbatches),
         "the number in the file", "remove the key"});
  return file;
}

}  // namespace

ScheduleSource::ScheduleSource(const ScheduleOptions& config, int pipeline) : config_(config), pipeline_(pipeline) {
  if (is_schedule_file(config_.name)) {
    file_ = load_for(config_, pipeline_);
    stages_of_rank_ = file_->stages_of_rank;
  } else {
    stages_of_rank_ = make(1).stages_of_rank;
  }
}

int ScheduleSource::microbatches(int stages, std::int64_t replica_samples) const {
  ScheduleOptions config = config_;
  if (file_ && !config.microbatches) config.microbatches = file_->microbatches;
  return microbatch_count(config, stages, replica_samples);
}

schedule::Schedule ScheduleSource::make_stages(int microbatches) const {
  if (file_) return schedule::first_microbatches(*file_, microbatches);
  return schedule::generate(config_.name, pipeline_, microbatches, chunks_of(config_),
                            {.group_size = config_.group_size});
}

schedule::Schedule ScheduleSource::make(int microbatches) const {
  const schedule::Schedule stages = make_stages(microbatches);
  if (!vocabulary_) return stages;
  return schedule::with_vocabulary(stages, {.vocabulary = *vocabulary_}, config_.vocabulary_algorithm);
}

namespace {

// Lookups and additions of embedding rows take negligible time compared with matrix multiplications.
constexpr double kLookUp = 0.01;

// Costs of a rank whose layers take one unit each for forward, input gradient and weight gradient.
schedule::VocabularyCosts vocabulary_costs(const LayerWork& work, int algorithm) {
  const double layers = std::accumulate(work.layers.begin(), work.layers.end(), 0.0);
  const double head = layers > 0 ? work.last / layers : 1;
  schedule::VocabularyCosts costs{.embedding_forward = kLookUp, .embedding_backward = kLookUp};
  // Three multiplications of equal size; in algorithm 2, two of them run before the ranks synchronise.
  costs.head_forward = algorithm == 1 ? head : 2 * head;
  costs.head_backward = algorithm == 1 ? 2 * head : head;
  costs.head_combine = algorithm == 1 ? 0 : kLookUp;
  return costs;
}

}  // namespace

void ScheduleSource::share_vocabulary(const LayerWork& work) {
  vocabulary_ = vocabulary_costs(work, config_.vocabulary_algorithm);
}

bool ScheduleSource::gains_by_vocabulary(const LayerWork& work, const std::vector<int>& layers_of_stage) const {
  const schedule::Schedule plain = make_stages(file_ ? file_->microbatches : 4 * pipeline_);
  const int stages = plain.stages();
  const auto counts =
      layers_of_stage.empty() ? distribute_layers(static_cast<int>(work.layers.size()), stages) : layers_of_stage;
  const double layers = std::accumulate(work.layers.begin(), work.layers.end(), 0.0);
  if (!(layers > 0) || !(work.last > 0)) return false;
  if (plain.has_pairs()) return false;
  const auto costs_of = [&](const LayerWork& weighed) {
    schedule::Costs costs;
    for (const double of_stage : work_of_stages(weighed, counts)) {
      const double share = of_stage / layers * pipeline_;
      costs.stages.push_back({.forward = share, .input_gradient = share, .weight_gradient = share});
    }
    costs.vocabulary = vocabulary_costs(work, config_.vocabulary_algorithm);
    return costs;
  };
  LayerWork layers_alone = work;
  layers_alone.last = 0;
  const schedule::Costs shared = costs_of(layers_alone);
  const auto made = schedule::with_vocabulary(plain, shared, config_.vocabulary_algorithm);
  return schedule::simulate(made, shared).makespan_max_rank <
         schedule::simulate(plain, costs_of(work)).makespan_max_rank;
}

}  // namespace gantry
