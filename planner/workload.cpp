#include "gantry/planner/workload.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/core/base/wildcard.h"
#include "gantry/core/config/adapter_names.h"
#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/config/schedule_names.h"
#include "gantry/core/error.h"
#include "gantry/core/row_encoding.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/lora_names.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/config.h"
#include "gantry/planner/operations.h"
#include "gantry/schedule/configured_schedule.h"
#include "gantry/schedule/stages/layers_per_stage.h"

namespace gantry::planner {
namespace {

using models::DecoderSpec;

// The path of a module in Gantry and in Hugging Face's model.
struct Paths {
  std::string own, theirs;

  bool are_named(const std::string& entry) const {
    return models::names_module(entry, own) || models::names_module(entry, theirs);
  }
  bool are_saved(const std::string& entry) const {  // a module to save may contain others
    for (const std::string& path : {own, theirs})
      for (std::size_t end = path.size(); end != std::string::npos && end > 0; end = path.rfind('.', end - 1))
        if (models::names_module(entry, path.substr(0, end))) return true;
    return false;
  }
};

// The names of a model's modules and parameters for adapters.
class AdaptedModel {
 public:
  explicit AdaptedModel(const DecoderSpec& model) : names_(model.names) {
    if (model.vision)
      for (const auto& parameter : models::vision_parameters(*model.vision, model.hidden))
        of_encoder_.insert(parameter.name);
    for (const auto& family : models::decoder_families())
      if (family.model_type == model.family) files_ = family.files;
  }

  Paths paths(const std::string& parameter) const {
    const std::string own = parameter.substr(0, parameter.rfind('.'));
    std::string theirs = own;
    for (const auto& [ours, renamed] : files_.renamed)
      if (const auto at = own.rfind("." + ours); at != std::string::npos && at + 1 + ours.size() == own.size())
        theirs = own.substr(0, at + 1) + renamed;
    return {own, own == names_.head ? files_.head : files_.prefix + theirs};
  }
  bool is_stack(const std::string& parameter) const {
    const std::string end = "." + names_.experts;
    return paths(parameter).own.ends_with(end) && !parameter.ends_with("_bias");
  }
  // An image encoder has no adapters.
  bool is_of_decoder(const models::ParameterShape& parameter) const { return !of_encoder_.contains(parameter.name); }
  // Whether it is the weight of a linear layer other than the head.
  bool is_linear(const models::ParameterShape& parameter) const {
    const std::string own = paths(parameter.name).own;
    return is_of_decoder(parameter) && parameter.name.ends_with(".weight") && parameter.shape.size() == 2 &&
           own != names_.head && own != names_.tokens && own != names_.positions && own != names_.layer_tokens &&
           !own.ends_with("." + names_.router) && !own.ends_with("_coefs");
  }
  bool is_chosen(const models::ParameterShape& parameter, const std::string& entry) const {
    if (!is_of_decoder(parameter)) return false;
    const Paths module = paths(parameter.name);
    const std::string last = parameter.name.substr(parameter.name.rfind('.'));
    if (is_stack(parameter.name)) return Paths{module.own + last, module.theirs + last}.are_named(entry);
    if (last != ".weight" || parameter.shape.size() != 2) return false;
    const bool is_router = module.own.ends_with("." + names_.router);
    return module.are_named(entry) || (is_router && Paths{module.own + last, module.theirs + last}.are_named(entry));
  }

 private:
  const models::DecoderNames& names_;
  models::FileNames files_;
  std::set<std::string> of_encoder_;
};

void require_use(const char* key, const std::string& entry, bool is_used) {
  if (!is_used)
    throw ConfigError({key, "'" + entry + "' matches nothing in the model", "a layer or parameter of the model",
                       "start `gantry train` to see the nearest name"});
}

TrainedPart of_freeze(const std::vector<std::string>& patterns, const DecoderSpec& model) {
  TrainedPart trained;
  for (const auto& pattern : patterns) {
    bool is_used = false;
    for (const auto& parameter : models::parameter_shapes(model))
      if (matches_pattern(pattern, parameter.name, Star::kAnyText)) {
        trained.frozen.insert(parameter.name);
        is_used = true;
      }
    require_use("train.freeze", pattern, is_used);
  }
  return trained;
}

TrainedPart of_adapters(const LoraConfig& lora, const DecoderSpec& model) {
  const AdaptedModel names(model);
  TrainedPart trained;
  trained.dora = lora.use_dora;
  trained.tokens = static_cast<std::int64_t>(lora.trainable_token_indices.size());
  const auto shapes = models::parameter_shapes(model);
  const bool all = lora.target_modules == std::vector<std::string>{kAllLinear};
  for (const auto& parameter : shapes) {
    const Paths module = names.paths(parameter.name);
    const bool is_saved = std::any_of(lora.modules_to_save.begin(), lora.modules_to_save.end(),
                                      [&](const auto& entry) { return module.are_saved(entry); });
    if (!is_saved) trained.frozen.insert(parameter.name);
    const bool is_adapted = all ? names.is_linear(parameter)
                                : std::any_of(lora.target_modules.begin(), lora.target_modules.end(),
                                              [&](const auto& entry) { return names.is_chosen(parameter, entry); });
    if (!is_adapted) continue;
    const std::string path = names.is_stack(parameter.name)
                                 ? module.theirs + parameter.name.substr(parameter.name.rfind('.'))
                                 : module.theirs;
    trained.adapters[parameter.name] = models::rank_of(lora, path);
  }
  for (const auto& entry : lora.target_modules)
    require_use("lora.target_modules", entry, all || std::any_of(shapes.begin(), shapes.end(), [&](const auto& one) {
                                                return names.is_chosen(one, entry);
                                              }));
  return trained;
}

Recompute recompute_of(const std::string& name) {
  for (const Recompute each : {Recompute::kSelective, Recompute::kParts, Recompute::kFull})
    if (name_of(each) == name) return each;
  return Recompute::kNone;
}

// Resolves parallel.vocabulary: auto like the runtime.
bool shares_vocabulary(const Config& config, const std::vector<int>& layers) {
  if (config.parallel.vocabulary == "stages" || config.parallel.pipeline == 1) return false;
  if (config.parallel.vocabulary == "pipeline") return true;
  const DecoderSpec model = stated_model(config);
  if (model.mtp_loss > 0 || model.vision || config.parallel.zero > 1 || config.lora.is_on() ||
      config.train.objective.is_on())
    return false;  // not supported
  return ScheduleSource(config.schedule, config.parallel.pipeline)
      .gains_by_vocabulary(models::layer_work_of(model), layers);
}

// The frozen weights that model.quantize stores in fewer bits, with the lengths of their rows. Those of mxfp4 are
// turned from [experts, in, out] in gpt-oss.
std::map<std::string, std::int64_t> quantised_weights(const TrainedPart& trained, const DecoderSpec& model,
                                                      WeightCode code) {
  const AdaptedModel names(model);
  std::map<std::string, std::int64_t> columns;
  for (const auto& parameter : models::parameter_shapes(model)) {
    const bool is_linear = encodes_linear(code) && names.is_linear(parameter);
    const bool is_stack = encodes_experts(code) && names.is_stack(parameter.name);
    if ((is_linear || is_stack) && !trained.trains(parameter.name))
      columns[parameter.name] = code == WeightCode::kMxfp4 ? parameter.shape.at(1) : parameter.shape.back();
  }
  return columns;
}

// See nn/deferred_logits.h, and LinearImpl::has_factors().
bool keeps_logits(const Config& config, const TrainedPart& trained, const DecoderSpec& model) {
  const std::string head = model.names.head + ".weight";
  return config.train.objective.name == "distill" || config.train.device_graphs ||
         (trained.dora && trained.adapters.contains(head)) || trained.quantised.contains(head) ||
         (trained.tokens > 0 && model.tied);
}

}  // namespace

// Values of 16 bits have master weights. AdamW keeps two moments; those of adamw8bit have one byte for each element and
// a scale for each block. The averages of Adafactor's rows and columns are not counted. Muon keeps one moment of the
// matrices of layers, and AdamW's two of the other parameters.
Program gantry_program(const std::string& precision, const OptimizerConfig& optimizer) {
  const double value = value_bytes(precision), wide = value == 8 ? 8 : 4;
  const std::string& name = optimizer.name;
  const bool keeps_nothing = name == "adafactor" || (name == "sgd" && optimizer.momentum == 0);
  const double state = name == "adamw"        ? 2 * wide
                       : name == "adamw8bit"  ? 2 * (1 + wide / static_cast<double>(kAverageBlock))
                       : name == "adamw_bf16" ? 2 * 2
                       : keeps_nothing        ? 0
                                              : wide;
  const bool steps_matrices = name == "adafactor" || name == "muon";
  return {.mask_bytes = value,
          .gradient_bytes = wide,
          .optimizer_bytes = state + (value == 2 ? wide : 0),
          .bytes_of_ends = name == "muon" ? wide : 0,
          .unit = steps_matrices        ? SteppedUnit::kMatrix
                  : name == "adamw8bit" ? SteppedUnit::kRow
                                        : SteppedUnit::kElement};
}

models::DecoderSpec stated_model(const Config& config) {
  config.require_model();
  const nlohmann::json keys = models::keys_of_model(config.model);
  const nlohmann::json type = keys.is_object() ? keys.value("model_type", nlohmann::json()) : nlohmann::json();
  const std::string family =
      config.model.policy.empty() && type.is_string() ? type.get<std::string>() : config.model.policy;
  return models::decoder_spec(family, keys);
}

namespace {

std::shared_ptr<const TeacherPart> stated_teacher(const Config& config) {
  const ObjectiveConfig& objective = config.train.objective;
  if (objective.teacher.empty() || objective.top_k > 0) return nullptr;  // with top_k it does not run in steps
  Config teacher = config;
  teacher.model = {};
  teacher.model.path = objective.teacher;
  if (stated_model(config).vision) teacher.model.config_json = R"({"image_encoder": true})";
  TeacherPart part{.model = stated_model(teacher), .own = {}, .mixes = objective.loss_type == "jsd"};
  if (objective.hidden_weight > 0) part.hidden = models::embedding_columns(part.model);
  if (const auto& own = objective.teacher_parallel)
    part.own = {.tensor = own->tensor, .pipeline = own->pipeline, .microbatches = config.schedule.microbatches};
  return std::make_shared<const TeacherPart>(std::move(part));
}

}  // namespace

Workload stated_workload(const Config& config) {
  models::DecoderSpec model = stated_model(config);
  if (model.sentence && model.sentence->compares)
    throw ConfigError({"model.config.sentence_pairs", "a plan does not count the texts of a sample", "single texts",
                       "remove the key to plan a model of single texts"});
  TrainedPart trained = trained_part(config, model);
  Program program = gantry_program(config.precision, config.optimizer);
  const bool stores = keeps_logits(config, trained, model);
  const auto teacher = stated_teacher(config);
  if (teacher && teacher->hidden != models::embedding_columns(model)) trained.projected = teacher->hidden;
  if (config.train.ema > 0) program.optimizer_bytes += program.gradient_bytes;  // an average of the same type
  return {.model = std::move(model),
          .sequence = config.data.sequence_length,
          .batch = config.data.batch_size,
          .precision = config.precision,
          .program = program,
          .trained = std::move(trained),
          .keeps_logits = stores,
          .runs_ahead = config.train.objective.name == "kto",
          .teacher = teacher};
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
    layout.layers = layers_per_stage(config.schedule, models::layer_work_of(stated_model(config)), {});
  layout.vocabulary_algorithm = config.schedule.vocabulary_algorithm;
  layout.shares_vocabulary = shares_vocabulary(config, layout.layers);
  return layout;
}

TrainedPart trained_part(const Config& config, const DecoderSpec& model) {
  TrainedPart trained =
      config.lora.is_on() ? of_adapters(resolve_lora(config.lora), model) : of_freeze(config.train.freeze, model);
  if (const auto code = weight_code(config.model.quantize, config.model.quantize_double)) {
    const double value = value_bytes(config.precision);
    for (const auto& [name, columns] : quantised_weights(trained, model, *code)) {
      const RowEncoding row = row_encoding(*code, columns, {{0, columns}});
      trained.quantised[name] = static_cast<double>(row.record_bytes()) / (static_cast<double>(columns) * value);
    }
  }
  return trained;
}

}  // namespace gantry::planner
