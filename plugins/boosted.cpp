#include "gantry/plugins/boosted.h"

#include <cmath>

#include "gantry/plugins/gradient_norm.h"

namespace gantry {

namespace {

// A group's learning rate in proportion to the optimizer's; 1 for options of a user's own that state none.
double lr_share(const torch::optim::OptimizerOptions& group, const torch::optim::OptimizerOptions& defaults) try {
  return defaults.get_lr() > 0 ? group.get_lr() / defaults.get_lr() : 1;
} catch (const c10::Error&) {
  return 1;
}

}  // namespace

void BoostedModel::refuse_call(const char* name) {
  throw UsageError({"boosted model", std::string(name) + "() was called on it", "",
                    "call booster.execute_pipeline(batch, boosted), which runs forward and backward over all stages"});
}

BoostedOptimizer::BoostedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                   std::shared_ptr<GradientBuffers> gradients,
                                   std::unique_ptr<MasterParameters> masters, const ProcessGroupMesh& mesh,
                                   std::vector<int> held_stages, const StepRules& rules)
    : optimizer_(std::move(optimizer)),
      gradients_(std::move(gradients)),
      masters_(std::move(masters)),
      mesh_(mesh),
      held_stages_(std::move(held_stages)),
      rules_(rules) {
  if (rules.scaled) scaler_.emplace(*rules.scaled);
  for (auto& group : optimizer_->param_groups())
    lr_shares_.push_back(group.has_options() ? lr_share(group.options(), optimizer_->defaults()) : 1);
}

// True for a finite norm. Else the step is skipped, or the run stopped.
bool BoostedOptimizer::is_finite_step() {
  if (!rules_.clip_grad_norm && !skips_non_finite()) return true;
  const double norm = grad_norm();
  if (std::isfinite(norm)) return true;
  if (skips_non_finite()) return false;
  throw NumericalError(
      {"optimizer step " + std::to_string(steps_ + 1),
       "the gradient norm is " + std::to_string(norm) + ", first in " + first_non_finite(*gradients_, mesh_),
       "a finite norm", "lower the learning rate, or check the data of this step"});
}

bool BoostedOptimizer::step() {
  if (!synced_) {
    throw UsageError({"boosted optimizer", "step() was called on gradients that are not summed over the ranks yet", "",
                      "call booster.sync_gradients(boosted) after the last execute_pipeline under no_sync"});
  }
  const bool finite = is_finite_step();
  if (scaler_) finite ? scaler_->stepped() : scaler_->overflowed();
  ++steps_;
  if (!finite) return false;
  ++taken_steps_;
  if (rules_.clip_grad_norm) clip_gradients(*gradients_, grad_norm(), *rules_.clip_grad_norm);
  if (masters_) masters_->before_step();
  optimizer_->step();
  if (masters_) masters_->after_step();
  return true;
}

void BoostedOptimizer::zero_grad() {
  gradients_->zero();
  norm_.reset();
  synced_ = true;
}

double BoostedOptimizer::grad_norm(double p) {
  if (p != 2) return gradient_norm(*gradients_, mesh_, held_stages_, p);
  if (!norm_) norm_ = gradient_norm(*gradients_, mesh_, held_stages_);
  return *norm_;
}

double BoostedOptimizer::clip_grad_norm(double max_norm, double p) {
  const double norm = grad_norm(p);
  clip_gradients(*gradients_, norm, max_norm);
  norm_.reset();
  return norm;
}

void BoostedOptimizer::set_lr(double lr) {
  auto& groups = optimizer_->param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(lr * lr_shares_[i]);
}

}  // namespace gantry
