#include "gantry/plugins/boosted.h"

#include <cmath>

#include "gantry/plugins/gradient_norm.h"

namespace gantry {

void BoostedModel::refuse_call(const char* name) {
  throw UsageError({"boosted model", std::string(name) + "() was called on it", "",
                    "call booster.execute_pipeline(batch, boosted), which runs forward and backward over all stages"});
}

BoostedOptimizer::BoostedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                   std::shared_ptr<GradientBuffers> gradients, const ProcessGroupMesh& mesh,
                                   std::vector<int> held_stages, std::optional<double> clip_grad_norm)
    : optimizer_(std::move(optimizer)),
      gradients_(std::move(gradients)),
      mesh_(mesh),
      held_stages_(std::move(held_stages)),
      clip_grad_norm_(clip_grad_norm) {}

void BoostedOptimizer::step() {
  if (!synced_) {
    throw UsageError({"boosted optimizer", "step() was called on gradients that are not summed over the ranks yet", "",
                      "call booster.sync_gradients(boosted) after the last execute_pipeline under no_sync"});
  }
  if (clip_grad_norm_) {
    const double norm = grad_norm();
    if (!std::isfinite(norm)) {
      throw NumericalError({"optimizer step " + std::to_string(steps_ + 1),
                            "the gradient norm is " + std::to_string(norm), "a finite norm",
                            "lower the learning rate, or check the data of this step"});
    }
    clip_gradients(*gradients_, norm, *clip_grad_norm_);
  }
  optimizer_->step();
  ++steps_;
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
  for (auto& group : optimizer_->param_groups()) group.options().set_lr(lr);
}

}  // namespace gantry
