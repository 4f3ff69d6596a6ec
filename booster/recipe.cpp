#include "gantry/booster/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/plugin_library.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/deferred_init.h"

namespace gantry {
namespace {

nlohmann::json model_json(const Config& config) {
  return nlohmann::json::parse(config.model.config_json.empty() ? "{}" : config.model.config_json);
}

std::string family_of(const nlohmann::json& config, const std::string& directory) {
  const std::string type = config.value("model_type", "");
  for (const auto& name : models::families().names())
    if (models::families().at(name).model_type == type) return name;
  throw InputError({directory + "/config.json", "model_type '" + type + "' is not one that Gantry has",
                    "one of " + fmt::format("{}", fmt::join(models::families().names(), ", ")),
                    "register a model family for it"});
}

}  // namespace

void load_libraries(const Config& config) {
  for (const auto& path : config.libraries) load_plugin_library(path.c_str());
}

Config resolve_model(Config config) {
  if (!config.model.path.empty()) {
    nlohmann::json keys = read_model_config(config.model.path);
    if (config.model.policy.empty()) config.model.policy = family_of(keys, config.model.path);
    const nlohmann::json overrides = model_json(config);
    keys.update(overrides);
    config.model.config_json = keys.dump();
  }
  policies().at(config.model.policy);
  models::families().at(config.model.policy);
  return config;
}

std::shared_ptr<torch::nn::Module> build_model(const Config& config) {
  const auto& family = models::families().at(config.model.policy);
  const DeferredInit deferred;
  auto model = family.build(model_json(config));
  set_dtype(*model, dtype_of(config.precision));
  return model;
}

std::shared_ptr<DataLoader> build_loader(const Config& config) {
  const auto& family = models::families().at(config.model.policy);
  const auto keys = model_json(config);
  if (const auto context = family.context_length(keys); config.data.sequence_length > context) {
    throw ConfigError({"data.sequence_length",
                       fmt::format("{} is longer than the model's {} positions", config.data.sequence_length, context),
                       fmt::format("at most {}", context), "shorten it, or give the model more positions"});
  }
  std::shared_ptr<const Dataset> dataset = open_dataset(config.data, family.vocabulary_size(keys));
  return std::make_shared<DataLoader>(std::move(dataset), DataLoaderOptions{.global_batch = config.data.batch_size,
                                                                            .shuffle = config.data.shuffle,
                                                                            .seed = config.train.seed});
}

std::shared_ptr<DataLoader> build_evaluation_loader(const Config& config) {
  const auto& settings = config.evaluation;
  if (settings.path.empty()) return nullptr;
  DataConfig held_out = config.data;
  held_out.path = settings.path;
  const auto& family = models::families().at(config.model.policy);
  std::shared_ptr<const Dataset> dataset = open_dataset(held_out, family.vocabulary_size(model_json(config)));
  if (dataset->size() < held_out.batch_size)
    throw InputError({"evaluation.path", fmt::format("'{}' has {} samples", settings.path, dataset->size()),
                      fmt::format("at least data.batch_size {}", held_out.batch_size), "give more text"});
  return std::make_shared<DataLoader>(
      dataset, DataLoaderOptions{.global_batch = held_out.batch_size, .shuffle = false, .steps = settings.batches});
}

LrSchedule build_lr_schedule(const Config& config) {
  return {config.lr_schedule, config.optimizer.lr, config.train.steps};
}

Criterion build_criterion(const Config& config) {
  const auto& family = models::families().at(config.model.policy);
  const std::string task = family.task ? family.task(model_json(config)) : "tokens";
  if (task == "spans") return answer_span_loss();
  return task == "none" ? Criterion() : cross_entropy();
}

std::vector<std::string> load_weights(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh) {
  if (config.model.path.empty()) return {};
  return load_hugging_face(config.model.path, models::families().at(config.model.policy), model_json(config),
                           boosted.model->stage_module().parameters, {{"tp", mesh.coordinate("tp")}});
}

}  // namespace gantry
