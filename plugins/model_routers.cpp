#include "gantry/plugins/model_routers.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/core/planted.h"
#include "gantry/tensors/host_copy.h"

namespace gantry {
namespace {

// Before parameters that other stages hold are released, every router; then they tell by their paths.
std::vector<std::pair<std::string, nn::RouterImpl*>> routers_in(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, nn::RouterImpl*>> routers;
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    if (auto* router = dynamic_cast<nn::RouterImpl*>(item.value().get())) routers.emplace_back(item.key(), router);
  return routers;
}

void refuse_what_is_missing(const ExpertsConfig& experts, const StageModule& module, bool has_routers,
                            bool has_corrections) {
  const bool has_losses = experts.balance != "none" || experts.z_loss > 0;
  if (has_losses && !has_routers)
    throw ConfigError({experts.balance != "none" ? "experts.balance" : "experts.z_loss",
                       "is set, and the model has no nn::Router", "a model with experts", "take it out"});
  const std::string joint = module.policy().joint_loss(module.module());
  if (experts.balance == "transformers" && joint.empty())
    throw ConfigError({"experts.balance", "is transformers, and " + module.policy().name() + " has no such loss",
                       "sequence or microbatch, or a family whose config.json knows output_router_logits",
                       "let build_model make the model, or choose another loss"});
  if (experts.balance != "none" && experts.balance != "transformers" && !joint.empty())
    throw ConfigError({"experts.balance", "is " + experts.balance + ", and " + joint + " asks for transformers' loss",
                       "one balancing loss", "set " + joint + " to false, or experts.balance to transformers"});
  if (experts.bias_update > 0 && !has_corrections)
    throw ConfigError({"experts.bias_update", fmt::format("is {}, and no router has a correction", experts.bias_update),
                       "a model whose routers have one (deepseek_v3, RouterOptions::correction)", "take it out"});
}

nn::RouterBalance::Loss loss_of(const std::string& name) {
  if (name == "sequence") return nn::RouterBalance::Loss::kSequence;
  return name == "microbatch" ? nn::RouterBalance::Loss::kMicrobatch : nn::RouterBalance::Loss::kNone;
}

// Of a batch of this replica: labels that count, microbatches with samples, and tokens that are not padding.
struct Counted {
  double labels = 0, microbatches = 0, tokens = 0;
};

Counted count(const Batch& whole, const Criterion& criterion, bool states_labels, int microbatches) {
  const auto labels = states_labels ? 0 : criterion.counted(whole.tensors);
  if (!labels)
    throw UsageError({"experts", "a loss of routers has to know beforehand how many labels a step counts",
                      "gantry::cross_entropy or gantry::causal_cross_entropy, or ExecuteOptions::step_tokens",
                      "pass the step's counted labels to execute_pipeline"});
  const torch::Tensor mask = whole.tensors.get("attention_mask");
  const torch::Tensor known = mask.defined() ? on_host(mask) : mask;
  const double all = static_cast<double>(whole.samples * whole.tokens_per_sample);
  return {static_cast<double>(*labels), static_cast<double>(std::min<std::int64_t>(microbatches, whole.samples)),
          mask.defined() ? number_of(((known.defined() ? known : mask) != 0).sum()) : all};
}

}  // namespace

ModelRouters::ModelRouters(const ExpertsConfig& experts, const StageModule& module, const ProcessGroupMesh& mesh,
                           bool in_shards)
    : experts_(experts), mesh_(mesh), in_shards_(in_shards) {
  std::set<std::string> held;
  for (const auto& parameter : module.parameters) held.insert(parameter.placement.name);
  bool has_routers = false, has_corrections = false;
  for (const auto& [path, router] : routers_in(module.module())) {
    has_routers = true;
    has_corrections = has_corrections || router->options.correction;
    if (held.contains(path + ".weight")) routers_.push_back({path, router});
  }
  refuse_what_is_missing(experts, module, has_routers, has_corrections);
}

nn::RouterBalance ModelRouters::balance(const Batch& whole, const Criterion& criterion, int microbatches, bool adds,
                                        const ExecuteOptions& options, bool counts) const {
  nn::RouterBalance balance{
      .loss = loss_of(experts_.balance), .coefficient = experts_.aux_loss, .z_coefficient = experts_.z_loss};
  if (!balance.is_on()) return balance;
  if (adds && (balance.loss == nn::RouterBalance::Loss::kMicrobatch || balance.z_coefficient > 0))
    throw UsageError({"experts", "experts.balance microbatch, or a z_loss, in one of several calls of a step",
                      "one call of execute_pipeline a step, or experts.balance sequence alone",
                      "give the whole batch to one call: it makes microbatches itself"});
  if (adds && options.step_samples == 0)
    throw UsageError({"experts.balance", "is sequence in one of several calls of a step",
                      "the step's samples, known before the first backward",
                      "pass ExecuteOptions::step_samples beside step_tokens to each call"});
  // One rank of each replica counts, where the batch is whole.
  Counted mine;
  const bool states_labels = options.step_tokens > 0;
  if (counts) mine = count(whole, criterion, states_labels, microbatches);
  torch::Tensor sums = torch::tensor({mine.labels, mine.microbatches, mine.tokens}, torch::kFloat64);
  mesh_.batch_group_and(axis::kPipeline).all_reduce(sums).wait();
  const auto* sum = sums.const_data_ptr<double>();
  const auto at_least_one = [](double number) { return std::max(1.0, number); };
  balance.labels = states_labels ? static_cast<double>(options.step_tokens) : sum[0];
  balance.microbatches = at_least_one(sum[1]);
  balance.tokens = at_least_one(sum[2]);
  balance.sequences =
      at_least_one(static_cast<double>(options.step_samples > 0 ? options.step_samples : whole.global_samples));
  return balance;
}

void ModelRouters::begin() {
  choices_.clear();
  is_synced_ = false;
}

void ModelRouters::sync() {
  if (routers_.empty()) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (const auto& [path, router] : routers_) {
    const auto found = choices_.find(router);
    parts.push_back(found != choices_.end()
                        ? found->second
                        : torch::zeros({router->options.experts}, router->weight.options().dtype(torch::kInt64)));
  }
  torch::Tensor all = torch::cat(parts).detach();
  if (!planted("choices-of-one-replica"))
    (in_shards_ ? mesh_.batch_group_and(axis::kTensor) : mesh_.batch_group()).all_reduce(all).wait();
  std::int64_t begin = 0;
  for (const auto& [path, router] : routers_) {
    const torch::Tensor counts = all.narrow(0, begin, router->options.experts);
    begin += router->options.experts;
    torch::Tensor& of_step = counts_[path];
    of_step = is_synced_ ? of_step + counts : counts;
  }
  choices_.clear();
  is_synced_ = true;
}

void ModelRouters::stepped() {
  if (experts_.bias_update > 0 && is_synced_)
    for (const auto& [path, router] : routers_)
      if (router->correction.defined()) router->correct(counts_.at(path), experts_.bias_update);
  is_synced_ = false;
}

}  // namespace gantry
