#include "gantry/booster/recipe.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/booster/class_names.h"
#include "gantry/booster/lora.h"
#include "gantry/booster/lora_names.h"
#include "gantry/booster/plugin_library.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/stored_names.h"
#include "gantry/checkpoint/tied_tensors.h"
#include "gantry/core/adapter_split.h"
#include "gantry/core/first_process.h"
#include "gantry/core/paths.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/images/image_folder.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/lora.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

nlohmann::json model_json(const Config& config) {
  return nlohmann::json::parse(config.model.config_json.empty() ? "{}" : config.model.config_json);
}

std::string require_family(const nlohmann::json& config, const std::string& directory) {
  if (const std::string name = models::family_of(config); !name.empty()) return name;
  const nlohmann::json type = config.value("model_type", nlohmann::json(""));
  models::refuse_model_type(directory + "/config.json", type.is_string() ? type.get<std::string>() : type.dump(),
                            models::families().names());
}

// Null for a model whose policy is registered without a family: then the program builds it.
const models::ModelFamily* family_or_null(const Config& config) {
  const auto& families = models::families();
  return families.contains(config.model.policy) ? &families.at(config.model.policy) : nullptr;
}

// What the model's head is trained on, as ModelFamily::task says.
std::string task_of(const Config& config) {
  const auto* family = family_or_null(config);
  if (!family) return config.data.format == "squad" ? "spans" : "tokens";
  return family->task ? family->task(model_json(config)) : "tokens";
}

// The largest there are where nobody knows.
std::int64_t vocabulary_of(const Config& config) {
  const auto* family = family_or_null(config);
  return family ? family->vocabulary_size(model_json(config)) : std::numeric_limits<std::int64_t>::max();
}

void require_context(const Config& config, const DataConfig& data) {
  const auto* family = family_or_null(config);
  const auto context = family ? family->context_length(model_json(config)) : data.sequence_length;
  if (data.sequence_length > context)
    throw ConfigError({"data.sequence_length",
                       fmt::format("{} is longer than the model's {} positions", data.sequence_length, context),
                       fmt::format("at most {}", context), "shorten it, or give the model more positions"});
}

// Samples that a safetensors file has ready. What the family reads and is trained on has to be there.
SampleSource tensors_of(const Config& config, const DataConfig& data, const std::string& task, const std::string& key) {
  SampleSource source = sample_source(data, vocabulary_of(config), key);
  std::vector<std::string> needed, names;
  if (const auto* family = family_or_null(config)) {
    needed = {family->inputs.front(), task == "spans" ? "start_positions" : "labels"};
    if (task == "spans") needed.emplace_back("end_positions");
  }
  for (const auto& entry : source.entries) names.push_back(entry.name);
  for (const auto& name : needed)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw InputError({key, fmt::format("it has {}, but no '{}'", fmt::join(names, ", "), name),
                        fmt::format("{} for a model that is trained on {}", fmt::join(needed, ", "), task),
                        "add it to the file"});
  if (source.sequence_length != 0 && source.sequence_length != data.sequence_length)
    throw ConfigError(
        {"data.sequence_length",
         fmt::format("the value is {}, but the samples have {} tokens", data.sequence_length, source.sequence_length),
         fmt::format("{}", source.sequence_length), "set it to the length in the file"});
  if (source.sequence_length != 0) require_context(config, data);
  return source;
}

// Pictures in folders, as the model wants them: its processor's settings, or those that lie beside the training data.
SampleSource images_of(const Config& config, const DataConfig& data, const std::string& task, const std::string& key) {
  if (task != "images")
    throw ConfigError({"data.format", "images do not fit a model that is trained on " + task,
                       "a model that is trained on images (vit)", "choose the format of this model's samples"});
  const std::int64_t size = model_json(config).value("image_size", std::int64_t{ImageSettings().size}),
                     channels = model_json(config).value("num_channels", std::int64_t{kColours});
  if (channels != kColours)
    throw ConfigError({"data.format", fmt::format("images do not fit a model with {} channels", channels), "3 channels",
                       "prepare the images yourself: docs/data_labelled.md, \"Tensors\""});
  return image_source(data,
                      {.settings = image_settings_of(config.data, config.model.path, static_cast<int>(size)),
                       .trains = key != "evaluation.path",
                       .seed = config.train.seed,
                       .labels = vocabulary_of(config),
                       .classes = classes_of_images(config, model_json(config), vocabulary_of(config))},
                      key);
}

// A model that reads both directions would see the next token, which is its label.
void refuse_next_tokens(const models::ModelFamily* family, const DataConfig& data) {
  if (!family || !family->is_bidirectional) return;
  throw ConfigError(
      {"data.format",
       fmt::format("{} has labels for the next token, which {} would see because it reads both directions", data.format,
                   family->model_type),
       "tensors with masked input_ids and their labels, because Gantry does not mask tokens yet (data.objective: mlm)",
       "mask the tokens yourself: docs/data_labelled.md, \"Tensors\""});
}

// The configured samples, for this model. Refuses what can be refused without opening a file.
SampleSource samples_of(const Config& config, DataConfig data, const std::string& key) {
  const auto* family = family_or_null(config);
  const auto vocabulary = vocabulary_of(config);
  const std::string task = task_of(config);
  if (data.format == "tensors") return tensors_of(config, data, task, key);
  if (data.format == "images") return images_of(config, data, task, key);
  require_context(config, data);
  if (task == "pairs" && data.format == "jsonl" && family->inputs.front() == "input_ids") {
    if (data.target_length == 0) data.target_length = data.sequence_length;
    data.tokenizer = choose_text_tokenizer(data.tokenizer, config.model.path, vocabulary);
    return sample_source(data, vocabulary, key);
  }
  if (task == "pairs" || task == "images" || task == "classes")
    throw ConfigError({"data.format", fmt::format("{} does not fit a model that is trained on {}", data.format, task),
                       task == "pairs"    ? "tensors, or jsonl if the encoder reads tokens"
                       : task == "images" ? "images or tensors"
                                          : "tensors",
                       "write the samples' entries into a safetensors file: docs/data_labelled.md, \"Tensors\""});
  if (data.target_length > 0)
    throw ConfigError({"data.target_length",
                       fmt::format("the value is {}, but the model is trained on {}", data.target_length, task),
                       "a model with an encoder and a decoder", "remove the key"});
  if ((data.format == "squad") != (task == "spans"))
    throw ConfigError({"data.format", fmt::format("{} does not fit a model that is trained on {}", data.format, task),
                       task == "spans" ? "squad or tensors" : "text, jsonl, tokens, megatron or tensors",
                       "use squad only for models with a question-answering head"});
  if (data.format != "squad") refuse_next_tokens(family, data);
  if (data.format == "jsonl" && (!family || family->task))
    throw ConfigError({"data.format",
                       "jsonl packs documents into one sample, but this model cannot separate their attention",
                       "a decoder of one of Gantry's families", "use text, tokens or megatron"});
  if (data.format == "text" || data.format == "jsonl")
    data.tokenizer = choose_text_tokenizer(data.tokenizer, config.model.path, vocabulary);
  else if (data.tokenizer.empty())
    data.tokenizer = config.model.path;
  if (data.format == "squad" && data.tokenizer.empty())
    throw ConfigError(
        {"data.tokenizer", "the key is missing, and there is no model.path", "a directory with vocab.txt", ""});
  return sample_source(data, vocabulary, key);
}

// The classes of the training data become those of config.json, so that an export names them.
void name_classes(Config& config) {
  const DataConfig& data = config.data;
  if (data.format != "images" || task_of(config) != "images") return;
  const std::string& path = data.sources.empty() ? data.path : data.sources.front().path;
  nlohmann::json keys = model_json(config);
  if (!is_folder(path) || !stated_classes(keys).empty()) return;
  const std::int64_t labels = vocabulary_of(config);
  set_class_names(keys, classes_of_images(config, keys, labels), labels);
  config.model.config_json = keys.dump();
}

void add_noise(torch::nn::Module& model, const Config& config) {
  config.mark_used("train.neftune_alpha");
  if (config.train.neftune_alpha == 0) return;
  auto* decoder = dynamic_cast<models::DecoderImpl*>(&model);
  if (!decoder)
    throw ConfigError(
        {"train.neftune_alpha",
         fmt::format("the value is {}, but {} does not support it", config.train.neftune_alpha, config.model.policy),
         "a decoder of one of Gantry's families", "remove the key"});
  decoder->add_embedding_noise(config.train.neftune_alpha);
}

}  // namespace

void load_libraries(const Config& config) {
  for (const auto& path : config.libraries) load_plugin_library(path.c_str());
}

Config resolve_model(Config config) {
  nlohmann::json file = nlohmann::json::object();
  if (!config.model.path.empty()) {
    nlohmann::json keys = read_model_config(config.model.path);
    if (config.model.policy.empty()) config.model.policy = require_family(keys, config.model.path);
    file = keys;
    drop_replaced_labels(keys, model_json(config));
    keys.update(model_json(config));
    config.model.config_json = keys.dump();
  }
  config.require_model();
  config.lora = resolve_lora(std::move(config.lora));
  policies().at(config.model.policy);
  const auto* family = family_or_null(config);
  if (family) {
    const std::string path = config.model.path + "/config.json";
    nlohmann::json keys = model_json(config);
    const std::string warning = models::check_model_keys(*family, keys, config.model.unknown_keys, file, path);
    if (!warning.empty() && is_first_process()) fmt::print(stderr, "warning: {}\n", warning);
    if (!config.model.path.empty()) {
      keys.update(compare_tied_tensors(config.model.path, *family, keys).keys);
      config.model.config_json = keys.dump();
    }
  }
  name_classes(config);
  return config;
}

std::shared_ptr<torch::nn::Module> build_model(const Config& config) {
  config.mark_used("model.config");
  const auto& family = models::families().at(config.model.policy);
  nlohmann::json keys = model_json(config);
  if (config.experts.balance == "transformers")
    keys.update({{"output_router_logits", true}, {"router_aux_loss_coef", config.experts.aux_loss}});
  const DeferredInit deferred;
  auto model = family.build(keys);
  add_noise(*model, config);
  set_dtype(*model, dtype_of(config.precision));
  add_lora(*model, config);
  freeze_parameters(*model, config);
  return model;
}

std::shared_ptr<DataLoader> build_loader(const Config& config) {
  config.mark_used("data");
  return std::make_shared<DataLoader>(samples_of(config, config.data, "data.path"),
                                      DataLoaderOptions{.global_batch = config.data.batch_size,
                                                        .shuffle = config.data.shuffle,
                                                        .seed = config.train.seed,
                                                        .prefetch = config.data.prefetch});
}

std::shared_ptr<DataLoader> build_evaluation_loader(const Config& config) {
  config.mark_used("evaluation.path");
  if (config.evaluation.path.empty()) return nullptr;
  DataConfig held_out = config.data;
  held_out.path = config.evaluation.path;
  held_out.sources.clear();
  return std::make_shared<DataLoader>(samples_of(config, held_out, "evaluation.path"),
                                      DataLoaderOptions{.global_batch = held_out.batch_size,
                                                        .shuffle = false,
                                                        .steps = config.evaluation.batches,
                                                        .keep_last = true});
}

LrSchedule build_lr_schedule(const Config& config) {
  config.mark_used("lr_schedule");
  return LrSchedule(config.lr_schedule, config.optimizer.lr, config.train.steps);
}

namespace {

constexpr const char* kRegression = "regression";
constexpr const char* kSeveralLabels = "multi_label_classification";

bool has_real_labels(const DataConfig& data) {
  const std::string& path = data.sources.empty() ? data.path : data.sources.front().path;
  if (data.format != "tensors" || !is_file(path)) return false;
  const SafetensorsFile file(path);
  return file.contains("labels") && c10::isFloatingType(file.dtype("labels"));
}

// The result of ModelFamily::problem_type; "" for a single label, and for heads that do not classify.
std::string problem_of(const Config& config) {
  const auto* family = family_or_null(config);
  const std::string task = task_of(config);
  if (!family || !family->problem_type || (task != "images" && task != "classes")) return "";
  const std::string stated = family->problem_type(model_json(config));
  if (stated.empty()) return has_real_labels(config.data) ? kSeveralLabels : "";
  return stated == "single_label_classification" ? "" : stated;
}

void refuse_smoothing(const Config& config, const std::string& trained_on) {
  if (config.train.label_smoothing > 0)
    throw ConfigError({"train.label_smoothing", "the key has no effect for a model that is trained on " + trained_on,
                       "a model that is trained on tokens, pairs, images or classes", "remove the key"});
}

}  // namespace

Predictions predictions_of(const Config& config) {
  const std::string task = task_of(config), problem = problem_of(config);
  if (task == "spans") return Predictions::kSpans;
  if (problem == kRegression) return Predictions::kNumbers;
  if (problem == kSeveralLabels) return Predictions::kSeveralLabels;
  return task == "images" || task == "classes" ? Predictions::kClasses : Predictions::kNone;
}

Criterion build_criterion(const Config& config) {
  config.mark_used("train.label_smoothing");
  const std::string task = task_of(config), problem = problem_of(config);
  if (task == "spans" || task == "none" || !problem.empty()) refuse_smoothing(config, problem.empty() ? task : problem);
  if (task == "none") return {};
  if (task == "spans") return answer_span_loss();
  if (problem == kRegression) return mean_squared_error();
  if (problem == kSeveralLabels) return binary_cross_entropy();
  return cross_entropy(
      {.label_smoothing = config.train.label_smoothing, .of_classes = task == "images" || task == "classes"});
}

namespace {

// The base's tensors alone: adapters are in no file of the base.
std::vector<HeldTensor> without_adapters(std::vector<HeldTensor> held) {
  std::erase_if(held, [](const HeldTensor& one) { return is_adapter(one.placement.name); });
  return held;
}

// Tells where the model differs from config.json, and which tensors of the files are not used.
void say_how_files_were_read(const Config& config, const LoadedModel& found) {
  const auto& family = models::families().at(config.model.policy);
  const auto ties = compare_tied_tensors(config.model.path, family, read_model_config(config.model.path));
  for (const auto& note : ties.notes) fmt::print(stderr, "warning: {}\n", note);
  if (!found.passed_over.empty())
    fmt::print(stderr, "warning: {}: tensors that this model does not read: {}\n", config.model.path,
               summary_of_names(found.passed_over));
}

void load_configured_adapter(const Config& config, const StageModule& module, const ProcessGroupMesh& mesh,
                             const std::function<void(std::uint64_t)>& loaded) {
  std::vector<std::string> names;
  for (const auto& placement : module.all_placements) names.push_back(placement.name);
  load_adapter(config.lora.path, models::trained_names(names, config.lora, family_names(config)), module.parameters,
               mesh.coordinates(), loaded);
}

}  // namespace

std::vector<std::string> load_weights(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh,
                                      const std::function<void(std::uint64_t)>& loaded) {
  config.mark_used("model.path");
  if (config.model.path.empty() && config.lora.path.empty()) return {};
  DiskProgress progress;
  LoadedModel found;
  work_on_disk(mesh.world_group(), disk_limits(config.comm.timeout_seconds), progress, [&] {
    const StageModule& module = boosted.model->stage_module();
    const auto read = [&](std::uint64_t bytes) {
      progress.add(bytes + 1);
      if (loaded) loaded(bytes);
    };
    if (!config.model.path.empty())
      found = load_hugging_face(config.model.path, models::families().at(config.model.policy), model_json(config),
                                without_adapters(module.parameters), mesh.coordinates(), read);
    if (!config.lora.path.empty()) load_configured_adapter(config, module, mesh, read);
  });
  if (mesh.rank() == 0 && !config.model.path.empty()) say_how_files_were_read(config, found);
  return std::move(found.fresh);
}

}  // namespace gantry
