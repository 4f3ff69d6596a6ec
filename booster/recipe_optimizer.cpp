// The configured optimizer: its class, and the parameters with options of their own.
#include <algorithm>
#include <fmt/format.h>
#include <regex>
#include <set>

#include "gantry/booster/name_patterns.h"
#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/optimizers/adafactor.h"
#include "gantry/optimizers/adamw_8bit.h"
#include "gantry/optimizers/adamw_bf16.h"
#include "gantry/optimizers/fused_adamw.h"
#include "gantry/optimizers/group_options.h"
#include "gantry/optimizers/lion.h"
#include "gantry/optimizers/muon.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

struct GroupValues {
  double lr = 0, weight_decay = 0;
  bool is_by_adamw = false;  // AdamW replaces the optimizer of optimizer.name
  auto operator<=>(const GroupValues&) const = default;
};

// True for a parameter like "h.3.mlp.up.weight" with at least two dims; false for embeddings, heads, norms
// and biases.
bool is_matrix_of_layer(const std::string& name, const torch::Tensor& parameter) {
  static const std::regex kNumberedPart("(^|.*\\.)[0-9]+\\..*");
  return parameter.dim() >= 2 && std::regex_match(name, kNumberedPart);
}

// Muon updates only the matrices of layers. The averages of small parameters would gain nothing from 8 bits.
bool is_by_adamw(const std::string& optimizer, const std::string& name, const torch::Tensor& parameter) {
  if (optimizer == "muon") return !is_matrix_of_layer(name, parameter);
  return optimizer == "adamw8bit" && (parameter.dim() < 2 || parameter.numel() < kSmallestAdamW8bit);
}

// The parameters of adapters whose learning rate lora.loraplus_lr_ratio multiplies.
bool is_behind_adapter(const std::string& name) {
  return name.ends_with(kAdapterB) || name.ends_with(kStackAdapterB) || name.ends_with(kAdapterMagnitude);
}

// The options of every parameter: those of the first group that matches it. A parameter that matches no_decay
// has no weight decay, unless its group sets one. The first name of a tied parameter is used.
std::vector<std::pair<GroupValues, std::vector<torch::Tensor>>> grouped(const Config& config,
                                                                        const torch::nn::Module& model) {
  const OptimizerConfig& settings = config.optimizer;
  NamePatterns no_decay("optimizer.no_decay", settings.no_decay);
  std::vector<NamePatterns> patterns;
  for (std::size_t i = 0; i < settings.groups.size(); ++i)
    patterns.emplace_back(fmt::format("optimizer.groups[{}].match", i), settings.groups[i].match);
  std::vector<std::pair<GroupValues, std::vector<torch::Tensor>>> groups;
  std::set<const void*> seen;
  for (const auto& item : model.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    GroupValues values{settings.lr, settings.weight_decay, is_by_adamw(settings.name, item.key(), item.value())};
    if (is_behind_adapter(item.key())) values.lr *= config.lora.loraplus_lr_ratio;
    if (no_decay.match(item.key())) values.weight_decay = 0;
    bool found = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!patterns[i].match(item.key()) || std::exchange(found, true)) continue;
      values.lr = settings.groups[i].lr.value_or(values.lr);
      values.weight_decay = settings.groups[i].weight_decay.value_or(values.weight_decay);
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == values; });
    if (group == groups.end()) group = groups.insert(groups.end(), {values, {}});
    group->second.push_back(item.value());
  }
  no_decay.check_use();
  for (const auto& each : patterns) each.check_use();
  return groups;
}

std::unique_ptr<torch::optim::AdamWOptions> adamw_options(const OptimizerConfig& settings, const GroupValues& values) {
  auto options = std::make_unique<torch::optim::AdamWOptions>(values.lr);
  options->betas({settings.beta1, settings.beta2}).eps(settings.eps).weight_decay(values.weight_decay);
  return options;
}

std::unique_ptr<torch::optim::SGDOptions> sgd_options(const OptimizerConfig& settings, const GroupValues& values) {
  auto options = std::make_unique<torch::optim::SGDOptions>(values.lr);
  options->momentum(settings.momentum).weight_decay(values.weight_decay);
  return options;
}

std::unique_ptr<LionOptions> lion_options(const OptimizerConfig& settings, const GroupValues& values) {
  auto options = std::make_unique<LionOptions>(values.lr);
  options->betas({settings.beta1, settings.beta2}).weight_decay(values.weight_decay);
  return options;
}

std::unique_ptr<MuonOptions> muon_options(const OptimizerConfig& settings, const GroupValues& values) {
  auto options = std::make_unique<MuonOptions>(values.lr);
  options->momentum(settings.momentum).weight_decay(values.weight_decay);
  return options;
}

std::unique_ptr<AdamW8bitOptions> adamw_8bit_options(const OptimizerConfig& settings, const GroupValues& values) {
  auto options = std::make_unique<AdamW8bitOptions>(values.lr);
  options->betas({settings.beta1, settings.beta2}).eps(settings.eps).weight_decay(values.weight_decay);
  return options;
}

std::unique_ptr<AdafactorOptions> adafactor_options(const OptimizerConfig&, const GroupValues& values) {
  auto options = std::make_unique<AdafactorOptions>(values.lr);
  options->weight_decay(values.weight_decay);
  return options;
}

template <class Optimizer, class Options>
std::shared_ptr<torch::optim::Optimizer> build(const Config& config, const torch::nn::Module& model, Options options) {
  const OptimizerConfig& settings = config.optimizer;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& [values, parameters] : grouped(config, model)) {
    std::unique_ptr<torch::optim::OptimizerOptions> chosen;
    if (values.is_by_adamw)
      chosen = adamw_options(settings, values);
    else
      chosen = options(settings, values);
    groups.emplace_back(parameters, std::move(chosen));
  }
  auto optimizer = std::make_shared<Optimizer>(groups, *options(settings, {settings.lr, settings.weight_decay}));
  keep_group_options(optimizer->param_groups(), groups);
  return optimizer;
}

std::shared_ptr<torch::optim::Optimizer> build_muon(const Config& config, const torch::nn::Module& model) {
  auto optimizer = build<Muon>(config, model, muon_options);
  const auto& groups = optimizer->param_groups();
  if (std::ranges::none_of(groups,
                           [](const auto& group) { return dynamic_cast<const MuonOptions*>(&group.options()); }))
    throw ConfigError({"optimizer.name", "the value is muon, but the model has no matrix in a repeated layer", "",
                       "use adamw, or create gantry::Muon with custom groups"});
  return optimizer;
}

}  // namespace

std::shared_ptr<torch::optim::Optimizer> build_optimizer(const Config& config, const torch::nn::Module& model) {
  config.mark_used("optimizer");
  if (!config.model.quantize.empty() && !config.lora.is_on() && !config.evaluation.only)
    throw ConfigError({"model.quantize", "weights in 4 or 8 bits cannot be trained",
                       "adapters that are trained instead", "add the section lora, or remove model.quantize"});
  const std::string& name = config.optimizer.name;
  if (name == "sgd") return build<torch::optim::SGD>(config, model, sgd_options);
  if (name == "lion") return build<Lion>(config, model, lion_options);
  if (name == "muon") return build_muon(config, model);
  if (name == "adamw8bit") return build<AdamW8bit>(config, model, adamw_8bit_options);
  if (name == "adamw_bf16") return build<AdamWBf16>(config, model, adamw_options);
  if (name == "adafactor") return build<Adafactor>(config, model, adafactor_options);
  return build<FusedAdamW>(config, model, adamw_options);
}

}  // namespace gantry
