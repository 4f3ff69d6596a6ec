#include "gantry/core/used_keys.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

struct UsedKey {
  const char* key;
  bool (*is_set)(const Config&);
  std::string_view by;  // functions that use the key in a custom loop
};

constexpr std::string_view kTrainer = "gantry::Trainer";

// Except clip_grad_norm, which boost() uses.
bool describes_optimizer(const OptimizerConfig& optimizer) {
  const OptimizerConfig initial;
  return optimizer.name != initial.name || optimizer.lr != initial.lr || optimizer.beta1 != initial.beta1 ||
         optimizer.beta2 != initial.beta2 || optimizer.eps != initial.eps ||
         optimizer.weight_decay != initial.weight_decay || optimizer.momentum != initial.momentum ||
         !optimizer.no_decay.empty() || !optimizer.groups.empty();
}

// Keys that always have an effect are not listed: they act in boost() and launch(), or (train.steps, train.log_every)
// are only information for the author of a custom loop.
constexpr UsedKey kCheckedKeys[] = {
    {"model.path", [](const Config& c) { return !c.model.path.empty(); }, "load_weights"},
    {"model.config", [](const Config& c) { return !c.model.config_json.empty() && c.model.path.empty(); },
     "build_model"},
    {"model.quantize", [](const Config& c) { return !c.model.quantize.empty(); }, "build_model"},
    {"model.quantize_double", [](const Config& c) { return c.model.quantize_double; }, "build_model"},
    {"lora", [](const Config& c) { return c.lora.is_on(); }, "build_model, or add_lora for a custom model"},
    {"train.freeze", [](const Config& c) { return !c.train.freeze.empty(); },
     "build_model, or freeze_parameters for a custom model"},
    {"train.objective", [](const Config& c) { return c.train.objective.is_on(); }, "build_criterion"},
    {"train.objective.reference_cache", [](const Config& c) { return !c.train.objective.reference_cache.empty(); },
     kTrainer},
    {"train.label_smoothing", [](const Config& c) { return c.train.label_smoothing > 0; }, "build_criterion"},
    {"train.max_minutes", [](const Config& c) { return c.train.max_minutes > 0; }, kTrainer},
    {"train.log_files", [](const Config& c) { return c.train.log_files != TrainConfig().log_files; }, kTrainer},
    {"train.otlp", [](const Config& c) { return !c.train.otlp.empty(); }, kTrainer},
    {"train.epochs", [](const Config& c) { return c.train.epochs > 0; }, kTrainer},
    {"train.neftune_alpha", [](const Config& c) { return c.train.neftune_alpha > 0; }, "build_model"},
    {"train.patience", [](const Config& c) { return c.train.patience > 0; }, kTrainer},
    {"evaluation.choices", [](const Config& c) { return !c.evaluation.choices.empty(); }, kTrainer},
    {"evaluation.prompts", [](const Config& c) { return !c.evaluation.prompts.empty(); }, kTrainer},
    {"evaluation.ema", [](const Config& c) { return c.evaluation.ema; }, kTrainer},
    {"checkpoint.keep_best", [](const Config& c) { return c.checkpoint.keep_best; }, kTrainer},
    {"checkpoint.load", [](const Config& c) { return !c.checkpoint.load.empty(); }, "RunCheckpoints"},
    {"data", [](const Config& c) { return !c.data.format.empty(); }, "build_loader"},
    {"optimizer", [](const Config& c) { return describes_optimizer(c.optimizer); }, "build_optimizer"},
    {"lr_schedule",
     [](const Config& c) {
       return c.lr_schedule.name != "constant" || c.lr_schedule.warmup_steps > 0 || c.lr_schedule.warmup_ratio > 0;
     },
     "build_lr_schedule, whose result is passed to boost or the Trainer"},
    {"evaluation.path", [](const Config& c) { return !c.evaluation.path.empty(); }, "build_evaluation_loader"},
    {"checkpoint.path", [](const Config& c) { return !c.checkpoint.path.empty(); }, "RunCheckpoints"},
    {"output", [](const Config& c) { return !c.output.empty(); }, "open_output"},
    {"elastic", [](const Config& c) { return c.elastic.is_on(); }, kTrainer},
    {"profile", [](const Config& c) { return c.profile.active > 0; }, "RunProfile"},
};

// The Trainer uses all keys that only it uses.
bool runs_trainer(const UsedKeys& used) {
  return std::ranges::all_of(kCheckedKeys,
                             [&](const UsedKey& each) { return each.by != kTrainer || used.has(each.key); });
}

}  // namespace

void UsedKeys::add(const std::string& key) {
  const std::lock_guard lock(mutex_);
  keys_.insert(key);
}

bool UsedKeys::has(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return keys_.contains(key) || keys_.contains("");
}

void UsedKeys::give(const std::string& key) {
  const std::lock_guard lock(mutex_);
  given_.insert(key);
}

bool UsedKeys::is_given(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return given_.contains(key);
}

std::vector<std::string> checked_keys() {
  std::vector<std::string> keys = {"precision"};  // boost() requires a custom model to have this precision
  for (const auto& each : kCheckedKeys) keys.emplace_back(each.key);
  return keys;
}

void refuse_unused_keys(const Config& config) {
  std::string keys, remedies;
  for (const auto& [key, is_set, by] : kCheckedKeys) {
    if (!config.used_keys->is_given(key) || !is_set(config) || config.used_keys->has(key)) continue;
    keys += fmt::format("{}{}", keys.empty() ? "" : ", ", key);
    remedies += fmt::format("{}{} with {}", remedies.empty() ? "" : ", ", key, by);
  }
  if (keys.empty()) return;
  const std::string way = runs_trainer(*config.used_keys) ? "pass the Trainer no part of your own for it"
                                                          : fmt::format("run the steps with {}", kTrainer);
  throw ConfigError({keys, "the configuration sets this, but the program does not use it", "",
                     way + ", use " + remedies + ", call config.mark_used(KEY), or remove the key"});
}

}  // namespace gantry
