#include "gantry/planner/stated_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/schedule_choice.h"
#include "gantry/core/schedule_names.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/configured.h"
#include "gantry/planner/trained_part.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry::planner {
namespace {

Recompute recompute_of(const std::string& name) {
  for (const Recompute each : {Recompute::kSelective, Recompute::kParts, Recompute::kFull})
    if (name_of(each) == name) return each;
  return Recompute::kNone;
}

// As the runtime takes parallel.vocabulary: auto by its rule.
bool shares_vocabulary(const Config& config, const std::vector<int>& layers) {
  if (config.parallel.vocabulary == "stages" || config.parallel.pipeline == 1) return false;
  if (config.parallel.vocabulary == "pipeline") return true;
  return ScheduleSource(config.schedule, config.parallel.pipeline)
      .gains_by_vocabulary(models::layer_work_of(stated_model(config)), layers);
}

}  // namespace

models::DecoderSpec stated_model(const Config& config) {
  config.require_model();
  const nlohmann::json keys = models::keys_of_model(config.model);
  const nlohmann::json type = keys.is_object() ? keys.value("model_type", nlohmann::json()) : nlohmann::json();
  const std::string family =
      config.model.policy.empty() && type.is_string() ? type.get<std::string>() : config.model.policy;
  return models::decoder_spec(family, keys);
}

Workload stated_workload(const Config& config) {
  models::DecoderSpec model = stated_model(config);
  TrainedPart trained = trained_part(config, model);
  return {.model = std::move(model),
          .sequence = config.data.sequence_length,
          .batch = config.data.batch_size,
          .precision = config.precision,
          .program = gantry_program(config.precision, config.optimizer.name),
          .trained = std::move(trained)};
}

Layout stated_layout(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  Layout layout{.tensor = parallel.tensor,
                .pipeline = parallel.pipeline,
                .data = parallel.data,
                .context = parallel.context,
                .expert = parallel.expert,
                .context_method = parallel.context_method,
                .ulysses = parallel.ulysses,
                .sequence_parallel = parallel.sequence_parallel,
                .zero = parallel.zero,
                .shard = parallel.shard,
                .gather = parallel.gather,
                .schedule = config.schedule.name,
                .chunks = chunks_of(config.schedule),
                .recompute = recompute_of(config.schedule.recompute)};
  const auto replicas = std::max(1, layout.data);
  const auto samples = (config.data.batch_size + replicas - 1) / replicas;
  const int count = microbatch_count(config.schedule, layout.pipeline * layout.chunks, samples);
  layout.microbatch = config.schedule.microbatch_size.value_or((samples + count - 1) / std::max(1, count));
  if (!config.schedule.microbatch_size) layout.microbatches = count;
  if (const auto* list = std::get_if<std::vector<int>>(&config.schedule.layers))
    layout.layers = *list;
  else if (const auto& name = std::get<std::string>(config.schedule.layers); is_balanced(config.schedule))
    layout.balanced = true;
  else if (name != "default")
    layout.layers = layers_per_stage(config.schedule, {}, {});
  layout.vocabulary_algorithm = config.schedule.vocabulary_algorithm;
  layout.shares_vocabulary = shares_vocabulary(config, layout.layers);
  return layout;
}

}  // namespace gantry::planner
