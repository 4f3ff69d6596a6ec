#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/class_names.h"
#include "gantry/booster/image_chats.h"
#include "gantry/booster/preference_samples.h"
#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/images/image_folder.h"
#include "gantry/data/labelled_lines.h"
#include "gantry/data/masked_text.h"
#include "gantry/data/numbered_samples.h"
#include "gantry/data/text_group_lines.h"
#include "gantry/data/weighted_sources.h"
#include "gantry/models/batch_entries.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// `texts`: number of texts of a sample, each with positions of its own from 0.
void require_context(const Config& config, const DataConfig& data, std::int64_t texts = 1) {
  const auto* family = family_or_null(config);
  const auto context = family ? family->context_length(model_json(config)) : data.sequence_length;
  if ((data.sequence_length + texts - 1) / texts <= context) return;
  throw ConfigError({"data.sequence_length",
                     fmt::format("{} is longer than the model's {} positions{}", data.sequence_length, context,
                                 texts > 1 ? fmt::format(" for each of {} texts", texts) : ""),
                     fmt::format("at most {}", texts * context), "shorten it, or give the model more positions"});
}

bool reads_texts_alone(const models::ModelFamily& family) {
  return std::ranges::count(family.inputs, "pixel_values") == 0;
}

// Checks the entries of the first source, which all others have too.
void check_tensors(const DataConfig& data, const models::ModelFamily& family, const std::string& task,
                   const std::string& key) {
  const std::string& path = data.sources.empty() ? data.path : data.sources.front().path;
  const SafetensorsFile file(path);
  TensorDict views;
  for (const auto& name : file.names()) views.set(name, file.view(name));
  models::check_batch_entries(views, family, task, key + " " + path);
}

// Reads prepared samples from a safetensors file. It must have the entries that the family reads and is
// trained on, and no others.
SampleSource tensors_of(const Config& config, const DataConfig& data, const std::string& task, const std::string& key) {
  SampleSource source = sample_source(data, vocabulary_of(config), key);
  std::vector<std::string> needed, names;
  const auto* family = family_or_null(config);
  if (family) {
    needed = {family->inputs.front(), task == "spans" ? "start_positions" : "labels"};
    if (task == "spans") needed.emplace_back("end_positions");
    if (task == "contrast") {
      needed = {"input_ids"};
      if (!reads_texts_alone(*family)) needed.emplace_back("pixel_values");
    }
  }
  for (const auto& entry : source.entries) names.push_back(entry.name);
  for (const auto& name : needed)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw InputError({key, fmt::format("it has {}, but no '{}'", fmt::join(names, ", "), name),
                        fmt::format("{} for a model that is trained on {}", fmt::join(needed, ", "), task),
                        "add it to the file"});
  if (family) check_tensors(data, *family, task, key);
  if (source.sequence_length != 0 && source.sequence_length != data.sequence_length)
    throw ConfigError(
        {"data.sequence_length",
         fmt::format("the value is {}, but the samples have {} tokens", data.sequence_length, source.sequence_length),
         fmt::format("{}", source.sequence_length), "set it to the length in the file"});
  if (source.sequence_length != 0) require_context(config, data);
  return source;
}

// Reads images in directories, with the settings of the model's image processor, or those in the directory of
// the training data.
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

// data.objective: the way in which inputs and labels are made. Without the key it follows from the model's
// head and the format.
enum class Objective { kCausal, kMasked, kLabels };

std::string name_of(Objective objective) {
  return objective == Objective::kCausal ? "causal" : objective == Objective::kMasked ? "mlm" : "labels";
}

bool is_bidirectional(const models::ModelFamily* family) { return family && family->is_bidirectional; }

// The only objective that fits the format and the model.
Objective fitting_objective(const DataConfig& data, const std::string& task, const models::ModelFamily* family) {
  if (data.format == "tensors" || data.format == "images" || data.format == "squad") return Objective::kLabels;
  if (task == "classes" || task == "contrast") return Objective::kLabels;
  return is_bidirectional(family) && task == "tokens" ? Objective::kMasked : Objective::kCausal;
}

void require_objective(const Config& config, const DataConfig& data, const std::string& task) {
  const auto* family = family_or_null(config);
  const Objective fitting = fitting_objective(data, task, family);
  // A custom model may be bidirectional.
  const bool may_be_masked = !family && fitting == Objective::kCausal && data.objective == "mlm";
  if (!data.objective.empty() && data.objective != name_of(fitting) && !may_be_masked)
    throw ConfigError(
        {"data.objective",
         fmt::format("{} does not fit {} data and a model that is trained on {}", data.objective, data.format, task),
         name_of(fitting), "change or remove the key"});
  if (data.objective.empty() && fitting == Objective::kMasked)
    throw ConfigError({"data.objective",
                       fmt::format("{} data have labels for the next token, which {} would see because it reads both "
                                   "directions",
                                   data.format, family->model_type),
                       "mlm, which masks tokens", "set data.objective: mlm"});
}

// Reads text, tokens or Megatron's files, and masks tokens.
SampleSource masked_of(const Config& config, DataConfig data, const std::string& key) {
  if (data.format == "jsonl")
    throw ConfigError({"data.objective", "mlm does not read jsonl", "text, tokens or megatron",
                       "write the texts into files, and use data.format: text"});
  if (data.document_mask)
    throw ConfigError(
        {"data.document_mask", "the key has no effect with data.objective mlm", "false", "remove the key"});
  const auto vocabulary = vocabulary_of(config);
  data.tokenizer = choose_text_tokenizer(data.tokenizer, config.model.path, vocabulary);
  Masking masking = make_masking(*load_tokenizer(data.tokenizer), data.tokenizer, vocabulary);
  masking.probability = data.mlm_probability;
  masking.seed = config.train.seed;
  return mask_tokens(sample_source(data, vocabulary, key), masking);
}

void refuse_keys_of_texts(const DataConfig& data) {
  const DataConfig usual;
  const std::vector<std::pair<const char*, bool>> keys = {{"data.chat_template", !data.chat_template.empty()},
                                                          {"data.template_kwargs", !data.template_kwargs.empty()},
                                                          {"data.loss_on", data.loss_on != usual.loss_on},
                                                          {"data.bos", data.bos != usual.bos},
                                                          {"data.eos", data.eos != usual.eos},
                                                          {"data.target_length", data.target_length != 0}};
  for (const auto& [key, is_set] : keys)
    if (is_set)
      throw ConfigError(
          {key, "the key has no effect on labelled texts and groups of texts", "other data", "remove the key"});
}

// `keys`: the model's config.json.
SurroundedTextRules text_rules(const Config& config, const DataConfig& data, const nlohmann::json& keys) {
  const nlohmann::json padding = keys.value("pad_token_id", nlohmann::json());
  return {.tokenizer = choose_text_tokenizer(data.tokenizer, config.model.path, vocabulary_of(config)),
          .sequence_length = data.sequence_length,
          .vocabulary = vocabulary_of(config),
          .padding = padding.is_null() ? 0 : padding.get<std::int64_t>(),
          .bad_lines = data.bad_lines,
          .encoding = encoding_resources(data)};
}

// The lines of all sources, which `open_lines` opens by these rules.
template <class Rules>
SampleSource lines_source(const DataConfig& data, const std::string& key, const std::vector<SampleEntry>& entries,
                          const Rules& rules,
                          std::unique_ptr<Dataset> (*open_lines)(const std::vector<std::filesystem::path>& files,
                                                                 const Rules& rules, const std::string& place,
                                                                 const OpenProgress& progress)) {
  const auto open = [data, key, rules, open_lines](const OpenProgress& progress) {
    return open_sources(data, key, [&](const std::string& path, const std::string& where) {
      return open_lines(data_files("jsonl", path, where), rules, where + " " + path, progress);
    });
  };
  return {.entries = entries, .sequence_length = data.sequence_length, .open = open};
}

// Reads JSON lines of texts whose embeddings are compared.
SampleSource groups_of(const Config& config, const DataConfig& data, const std::string& key) {
  refuse_keys_of_texts(data);
  const TextGroupRules rules{
      .text = text_rules(config, data, family_or_null(config)->hugging_face_config(model_json(config))),
      .texts = texts_of_first_line(files_of_data(data))};
  return lines_source(data, key, text_group_entries(rules), rules, open_text_group_lines);
}

// Reads JSON lines with a text and its label.
SampleSource labelled_of(const Config& config, const DataConfig& data, const std::string& key) {
  const auto* family = family_or_null(config);
  const nlohmann::json keys = family->hugging_face_config(model_json(config));
  if (const auto head = keys["architectures"][0].get<std::string>(); !head.ends_with("ForSequenceClassification"))
    throw ConfigError({"data.format", "jsonl does not fit " + head,
                       "a model with ForSequenceClassification, or tensors",
                       "write the samples' entries into a safetensors file: docs/data_labelled.md, \"Tensors\""});
  refuse_keys_of_texts(data);
  const std::string problem = problem_of(config);
  const LabelledRules rules{.text = text_rules(config, data, keys),
                            .kind = problem == kRegression      ? LabelKind::kNumbers
                                    : problem == kSeveralLabels ? LabelKind::kSeveral
                                                                : LabelKind::kClass,
                            .labels = static_cast<std::int64_t>(keys.at("id2label").size()),
                            .classes = stated_classes(keys)};
  return lines_source(data, key, labelled_entries(rules), rules, open_labelled_lines);
}

// Returns the configured samples for this model. Throws for all faults that can be found without opening a
// file.
SampleSource samples_of(const Config& config, DataConfig data, const std::string& key) {
  const auto* family = family_or_null(config);
  const auto vocabulary = vocabulary_of(config);
  const std::string task = task_of(config);
  if (task == "none")
    throw ConfigError({"model.config.architectures", "the model has no head, so there is no loss to train it with",
                       "a head, or groups of texts for sentence embeddings",
                       "name a head, or set model.config.sentence_pairs"});
  if (config.train.objective.has_preferences()) {
    require_context(config, data, config.train.objective.name == "kto" ? 1 : 2);
    return preference_samples(config, std::move(data), key);
  }
  if (data.format == "tensors" || data.format == "images") require_objective(config, data, task);
  if (data.format == "tensors") return tensors_of(config, data, task, key);
  if (data.format == "images") return images_of(config, data, task, key);
  require_context(config, data);
  require_objective(config, data, task);
  if (data.objective == "mlm") return masked_of(config, data, key);
  if (task == "classes" && data.format == "jsonl") return labelled_of(config, data, key);
  if (task == "contrast" && data.format == "jsonl" && family && reads_texts_alone(*family))
    return groups_of(config, data, key);
  if (task == "pairs" && data.format == "jsonl" && family->inputs.front() == "input_ids") {
    if (data.target_length == 0) data.target_length = data.sequence_length;
    data.tokenizer = choose_text_tokenizer(data.tokenizer, config.model.path, vocabulary);
    return sample_source(data, vocabulary, key);
  }
  if (task == "pairs" || task == "images" || task == "classes" || task == "contrast")
    throw ConfigError({"data.format", fmt::format("{} does not fit a model that is trained on {}", data.format, task),
                       task == "pairs"      ? "tensors, or jsonl if the encoder reads tokens"
                       : task == "images"   ? "images or tensors"
                       : task == "contrast" ? "tensors, or jsonl if the model reads texts alone"
                                            : "jsonl or tensors",
                       "write the samples' entries into a safetensors file: docs/data_labelled.md, \"Tensors\""});
  if (data.target_length > 0)
    throw ConfigError({"data.target_length",
                       fmt::format("the value is {}, but the model is trained on {}", data.target_length, task),
                       "a model with an encoder and a decoder", "remove the key"});
  if ((data.format == "squad") != (task == "spans"))
    throw ConfigError({"data.format", fmt::format("{} does not fit a model that is trained on {}", data.format, task),
                       task == "spans" ? "squad or tensors" : "text, jsonl, tokens, megatron or tensors",
                       "use squad only for models with a question-answering head"});
  if (data.format == "jsonl" && (!family || !models::continues_text(*family, model_json(config))))
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
  if (data.format == "jsonl") return chat_samples(config, data, key);
  return sample_source(data, vocabulary, key);
}

// The log-probabilities of a stored teacher are found by the numbers of the samples.
SampleSource with_numbers(const Config& config, SampleSource source, bool held_out) {
  if (config.train.objective.top_k == 0) return source;
  return numbered_samples(std::move(source), held_out, "train.objective.top_k");
}

int workers_of(const DataConfig& data) { return data.workers > 0 ? data.workers : at::get_num_threads(); }

}  // namespace

SampleSource build_samples(const Config& config) {
  return with_numbers(config, samples_of(config, config.data, "data.path"), /*held_out=*/false);
}

std::shared_ptr<DataLoader> build_loader(const Config& config) {
  config.mark_used("data");
  return std::make_shared<DataLoader>(build_samples(config), DataLoaderOptions{.global_batch = config.data.batch_size,
                                                                               .shuffle = config.data.shuffle,
                                                                               .seed = config.train.seed,
                                                                               .prefetch = config.data.prefetch,
                                                                               .workers = workers_of(config.data)});
}

SampleSource build_evaluation_samples(const Config& config) {
  DataConfig held_out = config.data;
  held_out.path = config.evaluation.path;
  held_out.sources.clear();
  return with_numbers(config, samples_of(config, held_out, "evaluation.path"), /*held_out=*/true);
}

std::shared_ptr<DataLoader> build_evaluation_loader(const Config& config) {
  config.mark_used("evaluation.path");
  if (config.evaluation.path.empty()) return nullptr;
  return std::make_shared<DataLoader>(build_evaluation_samples(config),
                                      DataLoaderOptions{.global_batch = config.data.batch_size,
                                                        .shuffle = false,
                                                        .steps = config.evaluation.batches,
                                                        .workers = workers_of(config.data),
                                                        .keep_last = true});
}

}  // namespace gantry
