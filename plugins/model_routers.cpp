#include "gantry/plugins/model_routers.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "gantry/core/error.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// All routers of the model with their paths, including those whose parameters other stages hold.
std::vector<std::pair<std::string, nn::RouterImpl*>> routers_in(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, nn::RouterImpl*>> routers;
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    if (auto* router = dynamic_cast<nn::RouterImpl*>(item.value().get())) routers.emplace_back(item.key(), router);
  return routers;
}

void refuse_what_is_missing(const ExpertsOptions& experts, const StageModule& module, bool has_routers,
                            bool has_corrections) {
  const bool has_losses = experts.balance != RouterLoss::kNone || experts.z_loss > 0;
  if (has_losses && !has_routers)
    throw ConfigError({experts.balance != RouterLoss::kNone ? "experts.balance" : "experts.z_loss",
                       "the key is set, but the model has no experts",
                       "a model of a family with experts, or a program's own model with gantry::nn::Router",
                       "remove the key"});
  const std::string joint = module.split().joint_loss;
  if (experts.balance == RouterLoss::kTransformers && joint.empty())
    throw ConfigError({"experts.balance",
                       "the value is transformers, but " + module.policy().name() + " has no such loss",
                       "sequence or microbatch, or a model family with the key output_router_logits",
                       "create the model with build_model, or choose another loss"});
  if (experts.balance != RouterLoss::kNone && experts.balance != RouterLoss::kTransformers && !joint.empty())
    throw ConfigError({"experts.balance",
                       "the value is " + std::string(name_of(experts.balance)) + ", but " + joint +
                           " enables the loss of transformers",
                       "one balancing loss", "set " + joint + " to false, or experts.balance to transformers"});
  if (experts.bias_update > 0 && !has_corrections)
    throw ConfigError(
        {"experts.bias_update", fmt::format("the value is {}, but no router has an expert bias", experts.bias_update),
         "a model whose routers have expert biases (deepseek_v3, RouterOptions::correction)", "remove the key"});
}

nn::RouterBalance::Loss loss_of(RouterLoss loss) {
  if (loss == RouterLoss::kSequence) return nn::RouterBalance::Loss::kSequence;
  return loss == RouterLoss::kMicrobatch ? nn::RouterBalance::Loss::kMicrobatch : nn::RouterBalance::Loss::kNone;
}

// Counts in a batch of this replica: labels that count, microbatches with samples, and tokens that are not
// padding.
struct Counted {
  double labels = 0, microbatches = 0, tokens = 0;
};

Counted count(const Batch& full, const Criterion& criterion, bool states_labels, int microbatches) {
  const auto labels = states_labels ? 0 : criterion.counted(full.tensors);
  if (!labels)
    throw UsageError(
        {"experts",
         "the number of labels that a step counts is unknown before the step, but a loss of routers needs it",
         "gantry::cross_entropy or gantry::causal_cross_entropy, or ExecuteOptions::step_tokens",
         "pass the step's counted labels to execute_pipeline"});
  const torch::Tensor mask = full.tensors.get("attention_mask");
  const torch::Tensor known = mask.defined() ? on_host(mask) : mask;
  const double all = static_cast<double>(full.samples * full.tokens_per_sample);
  return {static_cast<double>(*labels), static_cast<double>(std::min<std::int64_t>(microbatches, full.samples)),
          mask.defined() ? number_of(((known.defined() ? known : mask) != 0).sum()) : all};
}

}  // namespace

ModelRouters::ModelRouters(const ExpertsOptions& experts, const StageModule& module, const ProcessGroupMesh& mesh,
                           bool in_shards)
    : experts_(experts), module_(module), mesh_(mesh), in_shards_(in_shards) {
  std::set<std::string> held;
  for (const auto& parameter : module.parameters) held.insert(parameter.placement.name);
  bool has_routers = false, has_corrections = false;
  for (const auto& [path, router] : routers_in(module.module())) {
    has_routers = true;
    has_corrections = has_corrections || router->options.correction;
    if (held.contains(path + ".weight")) {
      Held& here = routers_.emplace_back(Held{all_.size(), router});
      for (std::size_t i = 0; i < module.parameters.size(); ++i)
        if (module.parameters[i].tensor.is_same(router->correction)) here.correction = static_cast<int>(i);
    }
    all_.push_back({path, router->options.experts});
  }
  for (const auto& each : module.module().modules(/*include_self=*/false))
    if (auto* found = dynamic_cast<nn::ExpertsImpl*>(each.get())) experts_of_model_.push_back(found);
  refuse_what_is_missing(experts, module, has_routers, has_corrections);
}

nn::RouterBalance ModelRouters::balance(const Batch& full, const Criterion& criterion, int microbatches, bool adds,
                                        const ExecuteOptions& options, bool counts) const {
  nn::RouterBalance balance{
      .loss = loss_of(experts_.balance), .coefficient = experts_.aux_loss, .z_coefficient = experts_.z_loss};
  if (!balance.is_on()) return balance;
  if (adds && (balance.loss == nn::RouterBalance::Loss::kMicrobatch || balance.z_coefficient > 0))
    throw UsageError({"experts", "experts.balance: microbatch and experts.z_loss do not support several calls per step",
                      "one call of execute_pipeline per step, or only experts.balance: sequence",
                      "pass the full batch to one call, which splits it into microbatches"});
  if (adds && options.step_samples == 0)
    throw UsageError({"experts.balance", "the value is sequence, and the step has several calls",
                      "the number of samples of the step before the first backward",
                      "pass ExecuteOptions::step_samples in addition to step_tokens to each call"});
  // One rank of each replica counts, before the batch is split.
  Counted mine;
  const bool states_labels = options.step_tokens > 0;
  if (counts) mine = count(full, criterion, states_labels, microbatches);
  torch::Tensor sums = torch::tensor({mine.labels, mine.microbatches, mine.tokens}, torch::kFloat64);
  mesh_.batch_group_and(axis::kPipeline).all_reduce(sums).wait();
  const auto* sum = sums.const_data_ptr<double>();
  const auto at_least_one = [](double number) { return std::max(1.0, number); };
  balance.labels = states_labels ? static_cast<double>(options.step_tokens) : sum[0];
  balance.microbatches = at_least_one(sum[1]);
  balance.tokens = at_least_one(sum[2]);
  balance.sequences =
      at_least_one(static_cast<double>(options.step_samples > 0 ? options.step_samples : full.global_samples));
  return balance;
}

void ModelRouters::begin() {
  choices_.clear();
  is_synced_ = false;
  for (auto* experts : experts_of_model_) experts->take_dropped();  // discards the counts of evaluations
}

void ModelRouters::sync() {
  if (routers_.empty()) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (const auto& [place, router, correction] : routers_) {
    const auto found = choices_.find(router);
    parts.push_back(found != choices_.end()
                        ? found->second
                        : torch::zeros({router->options.experts}, router->weight.options().dtype(torch::kInt64)));
  }
  std::int64_t dropped = 0;
  for (auto* experts : experts_of_model_) dropped += experts->take_dropped();
  const torch::Tensor last = torch::tensor({dropped}, torch::kInt64);
  const torch::Device device = parts.front().device();
  parts.push_back(device.is_cpu() ? last : to_device(last, device));
  torch::Tensor all = torch::cat(parts).detach();
  (in_shards_ ? mesh_.batch_group_and(axis::kTensor) : mesh_.batch_group()).all_reduce(all).wait();
  counted_ = is_synced_ ? counted_ + all : all;
  choices_.clear();
  is_synced_ = true;
}

torch::Tensor ModelRouters::tokens_of(std::size_t held) const {
  std::int64_t begin = 0;
  for (std::size_t before = 0; before < held; ++before) begin += routers_[before].router->options.experts;
  return counted_.narrow(0, begin, routers_[held].router->options.experts);
}

std::vector<double> ModelRouters::summand(const std::vector<double>& read) const {
  if (all_.empty()) return {};
  std::vector<double> numbers;
  auto next = read.begin();
  // Replicas have the same numbers, so only one of them adds them.
  const bool adds = mesh_.batch_group().rank() == 0;
  for (std::size_t place = 0, held = 0; place < all_.size(); ++place) {
    const bool is_here = held < routers_.size() && routers_[held].place == place;
    held += is_here ? 1 : 0;
    for (std::int64_t expert = 0; expert < all_[place].experts; ++expert)
      numbers.push_back(is_here && adds ? *next++ : 0.0);
  }
  numbers.push_back(routers_.empty() || !adds ? 0.0 : read.back());
  return numbers;
}

ExpertLoads ModelRouters::loads(const std::vector<double>& sums) const {
  ExpertLoads loads;
  auto next = sums.begin();
  for (const auto& [path, experts] : all_) {
    loads.layers.push_back({.router = path, .tokens = {next, next + experts}});
    next += experts;
  }
  if (next != sums.end()) loads.dropped = static_cast<std::int64_t>(*next);
  return loads;
}

void ModelRouters::stepped() {
  if (experts_.bias_update > 0 && is_synced_)
    for (std::size_t i = 0; i < routers_.size(); ++i)
      if (routers_[i].correction >= 0) correct(i);
  is_synced_ = false;
}

// Updates the elements of the bias that this rank holds, which are a part of it under ZeRO 3.
void ModelRouters::correct(std::size_t held) {
  const torch::NoGradGuard no_grad;
  const HeldTensor& correction = module_.parameters.at(routers_[held].correction);
  const torch::Tensor change = routers_[held].router->change_of_correction(tokens_of(held), experts_.bias_update);
  torch::Tensor numbers = correction.tensor.view({-1});
  std::int64_t from = 0;
  visit_runs(held_slice(correction.placement, mesh_.coordinates()), [&](std::int64_t first, std::int64_t count) {
    numbers.narrow(0, from, count).add_(change.narrow(0, first, count));
    from += count;
  });
}

}  // namespace gantry
