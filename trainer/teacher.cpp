#include "gantry/trainer/teacher.h"

#include <fmt/format.h>
#include <utility>

#include "gantry/booster/image_encoder.h"
#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The configuration of the teacher's model.
Config config_of_teacher(const Config& config) {
  const std::string& folder = config.train.objective.teacher;
  Config teacher = config;
  teacher.model = {};
  teacher.model.path = folder;
  teacher.model.unknown_keys = config.model.unknown_keys;
  teacher.lora = {};
  teacher.train.freeze.clear();
  teacher.train.neftune_alpha = 0;
  teacher.train.objective = {};
  if (has_image_encoder(model_json(config))) teacher = with_image_encoder(std::move(teacher));
  teacher = resolve_model(std::move(teacher));
  const auto* family = family_or_null(teacher);
  if (!family || !models::continues_text(*family, model_json(teacher)))
    throw ConfigError({"train.objective.teacher", folder + " is not a model that continues text",
                       "a decoder of one of Gantry's families", "choose another directory"});
  if (const auto own = vocabulary_of(config), other = vocabulary_of(teacher); own != other)
    throw ConfigError(
        {"train.objective.teacher",
         fmt::format("the vocabulary of the teacher has {} tokens, and that of the student {}", other, own),
         "the same tokenizer and vocabulary", "choose another directory"});
  return teacher;
}

}  // namespace

Teacher::Teacher(const Config& config, Booster& booster, std::shared_ptr<TeacherLogits> logits)
    : booster_(booster), logits_(std::move(logits)) {
  const Config teacher = config_of_teacher(config);
  boosted_ = booster.boost(BoostRequest{.model = build_model(teacher),
                                        .criterion = keep_logits(logits_),
                                        .policy = policies().at(teacher.model.policy)()});
  load_weights(teacher, boosted_, booster.mesh());
}

Batch Teacher::prepare(Batch batch) {
  batch.tensors.set(kTeacherRows, torch::arange(batch.samples, torch::kInt64));
  logits_->samples = batch.samples;
  booster_.execute_pipeline(batch, boosted_, {.broadcast_loss = true, .forward_only = true});
  return batch;
}

}  // namespace gantry
