#include "gantry/plugins/accumulation.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/plugins/user_checks.h"

namespace gantry {
namespace {

std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost)));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

}  // namespace

void Accumulation::prepare() {
  using enum BoostedOptimizer::Gradients;
  const bool dropped = under_way() && optimizer_->gradients().were_all_removed();
  if (dropped || optimizer_->state() == kBroken) optimizer_->zero_grad();
}

void Accumulation::take(double expected, std::int64_t step_tokens) {
  if (optimizer_->steps() != step_ || optimizer_->state() == BoostedOptimizer::Gradients::kNone) samples_ = 0;
  step_ = optimizer_->steps();
  if (under_way())
    optimizer_->gradients().zero_removed();
  else
    begin(expected, step_tokens);
  if (step_tokens != stated_tokens_)
    throw UsageError({"step_tokens",
                      fmt::format("the value is {}, but an earlier call of this optimizer step passed {}", step_tokens,
                                  stated_tokens_),
                      "the same number in all calls of a step",
                      "pass the number of counted tokens of the full step to each call"});
  optimizer_->gradients().add_parameters();
  if (optimizer_->masters()) optimizer_->masters()->add_parameters();
}

void Accumulation::begin(double expected, std::int64_t step_tokens) {
  look_at_unused_gradients(optimizer_->gradients().begin_accumulation());
  optimizer_->gradients().release_sums();
  stated_tokens_ = step_tokens;
  expected_tokens_ = step_tokens > 0 ? static_cast<double>(step_tokens) : expected;
  loss_scale_ = optimizer_->loss_scale();
  counted_ = 0;
  has_graph_ = false;
  optimizer_->set_state(BoostedOptimizer::Gradients::kAdding);
}

void Accumulation::add(std::int64_t global_samples, std::int64_t counted, bool has_graph) {
  has_graph_ = has_graph_ || has_graph;
  samples_ += global_samples;
  counted_ += counted;
}

void Accumulation::finish(double counted, bool any_unsent) {
  if (stated_tokens_ > 0 && counted != static_cast<double>(stated_tokens_))
    throw UsageError(
        {"step_tokens", fmt::format("the value is {}, but the step's calls counted {}", stated_tokens_, counted),
         "the number that the criterion counts", "count the labels that are not ignored in all calls and replicas"});
  const double factor = counted > 0 ? expected_tokens_ / counted : 1;
  if (optimizer_->keeps_loss_scale())
    optimizer_->gradients().sync(factor, 1 / loss_scale_, any_unsent);
  else
    optimizer_->gradients().sync(factor / loss_scale_, 1, any_unsent);
  optimizer_->set_state(BoostedOptimizer::Gradients::kSummed);
  look_at_first_step(counted);
}

void Accumulation::give_up() {
  optimizer_->gradients().sync(1);
  optimizer_->zero_grad();
}

// If masters are stepped in place of the parameters, no other optimizer can train the model.
void Accumulation::look_at_unused_gradients(bool removed) {
  if (!optimizer_->masters() || optimizer_->state() != BoostedOptimizer::Gradients::kSummed) return;
  if (removed)
    throw UsageError({"boosted optimizer", "another optimizer has removed gradients that were not applied", "",
                      "call boosted.optimizer->step() and zero_grad(), because no other optimizer can train the model "
                      "with ZeRO or in a low precision"});
  if (!said_unused_ && mesh_.rank() == 0)
    print_warning(
        "execute_pipeline adds to gradients that were neither applied nor zeroed; call "
        "boosted.optimizer->step(), the only optimizer that works with ZeRO and low precision, or use "
        "booster.no_sync() to accumulate gradients");
  said_unused_ = true;
}

// Frozen parameters need no graph.
void Accumulation::require_graph() {
  bool steps = false;
  const GradientBuffers& gradients = optimizer_->gradients();
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i) steps = steps || gradients.steps(i);
  constexpr double kSteps = 1, kGraph = 2;
  const double mine = has_graph_ ? kGraph : steps ? kSteps : 0;
  if (all_reduce_number(mesh_.world_group(), mine, ReduceOp::kMax) != kSteps) return;
  throw UsageError({"criterion", "the loss of the first step depends on no parameter, so no parameter gets a gradient",
                    "a loss that autograd computes from the outputs of the model",
                    "remove detach(), item() and NoGradGuard from the criterion"});
}

void Accumulation::look_at_first_step(double counted) {
  if (counted == 0) {
    if (!has_counted_ && step_ == 0)  // a resumed run has had steps
      throw InputError({"batch", "all labels of the first step are ignored", "labels that are not all ignored",
                        "check the labels, where -100 (ignore_index) marks an ignored one"});
    if (mesh_.rank() == 0)
      print_warning(fmt::format("all labels of step {} are ignored, so its gradients are zero", step_ + 1));
    return;
  }
  if (has_counted_) return;
  has_counted_ = true;
  require_graph();
  const auto names = parameters_without_gradient(optimizer_->gradients(), model_, mesh_);
  if (!names.empty() && mesh_.rank() == 0)
    print_warning(
        fmt::format("{} parameters got no gradient in the first step: {}; the policy's forward does not use them, "
                    "or detaches their outputs; freeze them (requires_grad) if this is intended",
                    names.size(), first_names(names)));
}

}  // namespace gantry
