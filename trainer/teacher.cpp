#include "gantry/trainer/teacher.h"

#include <fmt/format.h>
#include <utility>

#include "gantry/booster/hidden_states.h"
#include "gantry/booster/image_encoder.h"
#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/core/config/teacher_layout.h"
#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
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

// The same with the layout train.objective.teacher_parallel. Options of training, and of stages, are the student's.
Config in_own_layout(Config teacher, const Config& student) {
  const TeacherParallelConfig& layout = *student.train.objective.teacher_parallel;
  teacher.parallel = {.tensor = layout.tensor,
                      .pipeline = layout.pipeline,
                      .sequence_parallel = student.parallel.sequence_parallel,
                      .tensor_overlap = student.parallel.tensor_overlap,
                      .order = student.parallel.order};
  teacher.experts = {};
  teacher.schedule = {};
  teacher.schedule.microbatches = student.schedule.microbatches;
  teacher.schedule.microbatch_size = student.schedule.microbatch_size;
  teacher.elastic = {};
  teacher.train = {};
  return teacher;
}

// `decoder`: a model that returns its hidden states, if they are compared.
OutputSizes sizes_of_outputs(const Config& config, torch::nn::Module& decoder) {
  OutputSizes sizes{.vocabulary = vocabulary_of(config)};
  if (config.train.objective.hidden_weight > 0)
    sizes.hidden = models::embedding_columns(dynamic_cast<models::DecoderImpl&>(decoder).spec);
  return sizes;
}

}  // namespace

Teacher::OwnPlugin::OwnPlugin(World& base, const Config& teacher, Mesh mesh)
    : world(base.backend(), teacher, std::move(mesh)),
      booster(std::make_unique<HybridParallelPlugin>(world, parallel_options(teacher, world.mesh()))) {}

Teacher::Teacher(const Config& config, World& world, Booster& booster, const Boosted& student,
                 std::shared_ptr<TeacherLogits> logits, bool is_temporary)
    : student_(booster), logits_(std::move(logits)) {
  Config teacher = config_of_teacher(config);
  const auto mesh = teacher_mesh(config, world.size());
  const bool has_own_layout = mesh.has_value();
  if (has_own_layout) teacher = in_own_layout(std::move(teacher), config);
  if (has_own_layout || is_temporary) own_ = std::make_unique<OwnPlugin>(world, teacher, mesh.value_or(world.mesh()));
  boosted_ = boost(teacher, config.train.objective);
  const OutputSizes sizes = sizes_of_outputs(config, boosted_.model->module());
  LogitsLayout of_student(student_.plugin(), student, sizes), of_teacher(this->booster().plugin(), boosted_, sizes);
  if (has_own_layout || !of_student.has_tokens_of(of_teacher))
    layouts_ = std::make_unique<TeacherLayouts>(std::move(of_student), std::move(of_teacher), world.device(),
                                                student_.mesh().world_group());
  load_weights(teacher, boosted_, this->booster().mesh());
}

Boosted Teacher::boost(const Config& teacher, const ObjectiveConfig& objective) {
  const auto boosted = [&] {
    const auto model = build_model(teacher);
    if (objective.hidden_weight > 0) return_hidden_states(*model);
    return booster().boost(BoostRequest{
        .model = model, .criterion = keep_logits(computed_), .policy = policies().at(teacher.model.policy)()});
  };
  if (!objective.teacher_parallel) return boosted();
  try {
    return boosted();
  } catch (const ConfigError& error) {
    throw ConfigError({"train.objective.teacher_parallel",
                       std::string("the teacher does not fit its layout: ") + error.what(), "a layout of the teacher",
                       "change its tensor or pipeline"});
  }
}

void Teacher::run(Batch& batch) {
  batch.tensors.set(kTeacherRows, torch::arange(batch.samples, torch::kInt64));
  computed_->samples = batch.samples;
  booster().execute_pipeline(batch, boosted_, {.broadcast_loss = true, .forward_only = true});
}

Batch Teacher::prepare(Batch batch) {
  if (!layouts_) {
    run(batch);
    *logits_ = *computed_;
    return batch;
  }
  const auto compute = [this](const Batch& given) {
    Batch part = given;
    run(part);
    return std::exchange(*computed_, {});  // only the student's layout keeps them
  };
  layouts_->compute_outputs(batch, compute, *logits_);
  batch.tensors.set(kTeacherRows, torch::arange(batch.samples, torch::kInt64));
  return batch;
}

}  // namespace gantry
