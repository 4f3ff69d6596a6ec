#include "gantry/booster/preference_samples.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gantry/booster/image_chats.h"
#include "gantry/booster/run_task.h"
#include "gantry/core/error.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/judged_lines.h"
#include "gantry/data/preference_lines.h"

namespace gantry {
namespace {

// Whether the head has one output per sequence of a decoder.
bool scores_sequences(const models::ModelFamily& family, const nlohmann::json& keys) {
  const nlohmann::json stated = family.hugging_face_config(keys);
  return !family.is_bidirectional &&
         stated["architectures"][0].get<std::string>().ends_with("ForSequenceClassification") &&
         stated.at("id2label").size() == 1;
}

void require_model(const Config& config) {
  const auto* family = family_or_null(config);
  const std::string &name = config.train.objective.name, task = task_of(config);
  const bool is_reward = name == "reward", fits = family && (is_reward ? task == "classes" : task == "tokens") &&
                                                  (is_reward ? scores_sequences(*family, model_json(config))
                                                             : models::continues_text(*family, model_json(config)));
  if (fits) return;
  if (is_reward)
    throw ConfigError({"train.objective", "reward does not fit a model that is trained on " + task,
                       "a decoder with a head for one label",
                       "set model.config: {architectures: [LlamaForSequenceClassification], num_labels: 1}, with the "
                       "name of the model's family"});
  throw ConfigError({"train.objective", name + " does not fit a model that is trained on " + task,
                     "a decoder of one of Gantry's families", "remove the key"});
}

void require_data(const Config& config, const DataConfig& data) {
  const std::string& name = config.train.objective.name;
  if (data.format != "jsonl")
    throw ConfigError({"data.format", data.format + " has no preferences, which train.objective needs", "jsonl",
                       "set data.format: jsonl"});
  const DataConfig usual;
  const std::vector<std::pair<const char*, bool>> unused = {
      {"data.objective", !data.objective.empty() && data.objective != "causal"},
      {"data.loss_on", data.loss_on != usual.loss_on},
      {"data.target_length", data.target_length != 0},
      {"data.sources", !data.sources.empty()}};
  for (const auto& [key, is_set] : unused)
    if (is_set)
      throw ConfigError({key, "the value cannot be combined with train.objective " + name, "", "remove the key"});
  if (data.bad_lines == "cut")
    throw ConfigError({"data.bad_lines", "cut cannot be combined with train.objective " + name, "stop or skip",
                       "set data.bad_lines: skip to leave out samples that are too long"});
}

PairForm form_of(const std::string& objective) {
  if (objective == "reward") return PairForm::kScores;
  return objective == "orpo" ? PairForm::kFullTexts : PairForm::kCompletions;
}

}  // namespace

SampleSource preference_samples(const Config& config, DataConfig data, const std::string& key) {
  require_data(config, data);
  require_model(config);
  const auto vocabulary = vocabulary_of(config);
  data.tokenizer = choose_text_tokenizer(data.tokenizer, config.model.path, vocabulary);
  LineRules rules = chat_rules(config, data);
  rules.loss_on = "last";
  rules.text_length = family_or_null(config)->context_length(model_json(config));
  const bool held_out = key == "evaluation.path", are_pairs = config.train.objective.name != "kto";
  const PairForm form = form_of(config.train.objective.name);
  const auto open = [=](const OpenProgress& progress) -> std::vector<WeightedDataset> {
    const auto files = data_files("jsonl", data.path, key);
    const std::string place = key + " " + data.path;
    if (!are_pairs) return {{open_judged_lines(files, rules, held_out, place, progress)}};
    return {{open_preference_lines(files, rules, form, held_out, place, progress)}};
  };
  SampleSource source{
      .entries = are_pairs ? preference_entries(form, data.sequence_length) : judged_entries(data.sequence_length),
      .sequence_length = data.sequence_length,
      .open = open};
  if (rules.images) source.collate = collate_images(config, source.entries);
  return source;
}

}  // namespace gantry
