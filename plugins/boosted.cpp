#include "gantry/plugins/boosted.h"

#include <cmath>
#include <set>
#include <typeinfo>

#include "gantry/optimizers/adamw_step.h"
#include "gantry/optimizers/fused_adamw.h"
#include "gantry/optimizers/gradient_norm.h"
#include "gantry/optimizers/loss_scaler.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/optimizers/step_latch.h"
#include "gantry/optimizers/weight_average.h"
#include "gantry/plugins/device_memory.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

// Returns nothing for custom options without a learning rate.
std::optional<double> stated_lr(const torch::optim::OptimizerOptions& options) try {
  return options.get_lr();
} catch (const c10::Error&) {
  return std::nullopt;
}

// Returns the optimizer if its kernel can scale gradients while it reads them, which saves a pass over them.
// Only FusedAdamW can, with a float32 factor. Null for another optimizer, for gradients of float64, and if
// the optimizer does not step all gradients.
FusedAdamW* scales_as_it_steps(torch::optim::Optimizer& optimizer, const GradientBuffers& gradients,
                               const MasterParameters* masters) {
  if (typeid(optimizer) != typeid(FusedAdamW)) return nullptr;
  std::set<void*> stepped;
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params()) stepped.insert(parameter.unsafeGetTensorImpl());
  const auto& held = gradients.parameters();
  for (std::size_t i = 0; i < held.size(); ++i) {
    const torch::Tensor& parameter = masters ? masters->master(i) : held[i].tensor;
    if (held[i].tensor.scalar_type() == torch::kFloat64) return nullptr;
    if (gradients.steps(i) && !stepped.contains(parameter.unsafeGetTensorImpl())) return nullptr;
  }
  return static_cast<FusedAdamW*>(&optimizer);
}

}  // namespace

void BoostedModel::refuse_call(const char* name) {
  throw UsageError({"boosted model", "the program called its " + std::string(name) + "()", "",
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
      rules_(rules),
      latch_(std::make_unique<StepLatch>(*optimizer_, [this] { zero_grad(); })) {
  if (rules.scaled) scaler_ = std::make_unique<LossScaler>(*rules.scaled);
  if (rules.ema > 0) average_ = std::make_unique<WeightAverage>(rules.ema);
  const auto full = stated_lr(optimizer_->defaults());
  lr_ = full.value_or(0);
  for (auto& group : optimizer_->param_groups()) {
    const auto own = group.has_options() ? stated_lr(group.options()) : std::nullopt;
    own_rates_.push_back(own);
    lr_shares_.push_back(own && full && *full > 0 ? *own / *full : 1);
  }
}

BoostedOptimizer::~BoostedOptimizer() = default;

const torch::Tensor& BoostedOptimizer::stepped(std::size_t parameter) const {
  return masters_ ? masters_->master(parameter) : gradients_->parameters()[parameter].tensor;
}

// Averages start with the values before the first step.
void BoostedOptimizer::visit_averages(void (*visit)(WeightAverage& average, const torch::Tensor& stepped)) {
  if (!average_) return;
  for (std::size_t i = 0; i < gradients_->parameters().size(); ++i)
    if (gradients_->trained(i)) visit(*average_, stepped(i));
}

void BoostedOptimizer::exchange_averages() {
  if (!average_)
    throw UsageError({"boosted optimizer", "exchange_averages() was called, but no averages are kept",
                      "a decay StepRules::ema (train.ema) above 0", "set train.ema"});
  wait();
  if (masters_) masters_->update();
  visit_averages([](WeightAverage& average, const torch::Tensor& stepped) { average.exchange(stepped); });
  if (masters_) masters_->after_step();
  wait();
  holds_averages_ = !holds_averages_;
}

void BoostedOptimizer::require_weights() const {
  if (holds_averages_)
    throw UsageError({"boosted optimizer", "a step or a save while the parameters have the values of their averages",
                      "the weights themselves", "call exchange_averages() again before"});
}

void BoostedOptimizer::require_gradients() const {
  if (state_ == Gradients::kAdding)
    throw UsageError({"boosted optimizer", "step() was called before the gradients were reduced over the ranks", "",
                      "call booster.sync_gradients(boosted) after the last execute_pipeline under no_sync"});
  if (state_ != Gradients::kSummed)
    throw UsageError({"boosted optimizer", "step() was called without a backward since the last step or zero_grad", "",
                      "call booster.execute_pipeline(batch, boosted) first, or in a custom training loop "
                      "booster.sync_gradients(boosted) after the backward; and zero_grad() after step()"});
}

void BoostedOptimizer::require_finite_rates() const {
  const auto& groups = optimizer_->param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!own_rates_[i] || std::isfinite(groups[i].options().get_lr())) continue;
    throw NumericalError({"optimizer step " + std::to_string(steps_ + 1),
                          "the learning rate is " + std::to_string(groups[i].options().get_lr()), "a finite number",
                          "check the learning rate schedule, or the argument of set_lr"});
  }
}

// Returns true for a finite norm. Otherwise returns false to skip the step, or throws.
bool BoostedOptimizer::is_finite_step(double norm) {
  if (std::isfinite(norm)) return true;
  if (skips_non_finite()) return false;
  throw NumericalError(
      {"optimizer step " + std::to_string(steps_ + 1),
       "the gradient norm is " + std::to_string(norm) + ", first in " + first_non_finite(*gradients_, mesh_),
       "a finite norm", "lower the learning rate, or check the data of this step"});
}

bool BoostedOptimizer::step() {
  prepare_step();
  return take_step(grad_norm());
}

bool BoostedOptimizer::step(double norm) {
  prepare_step();
  return take_step(norm);
}

void BoostedOptimizer::prepare_step() {
  require_weights();
  require_gradients();
  if (rules_.lr_schedule) follow(*rules_.lr_schedule);
  require_finite_rates();
}

bool BoostedOptimizer::take_step(double norm) {
  const bool finite = is_finite_step(norm);
  if (scaler_) finite ? scaler_->stepped() : scaler_->overflowed();
  ++steps_;
  set_state(Gradients::kNone);
  if (!finite) return false;
  ++taken_steps_;
  const double clip = rules_.clip_grad_norm ? clip_factor(norm, *rules_.clip_grad_norm) : 1;
  const double factor = clip * gradients_->left();
  FusedAdamW* const scaling = factor != 1 ? scales_as_it_steps(*optimizer_, *gradients_, masters_.get()) : nullptr;
  if (factor != 1 && !scaling) gradients_->scale(clip);
  const auto& held = gradients_->parameters();
  naming_device_memory(
      [&] {
        if (masters_) masters_->before_step();
        make_initial_state(*optimizer_);
        visit_averages([](WeightAverage& average, const torch::Tensor& stepped) { average.of(stepped); });
        latch_->open_for([&] {
          if (scaling)
            step_by_adamw(*scaling, factor);
          else
            optimizer_->step();
        });
        visit_averages([](WeightAverage& average, const torch::Tensor& stepped) { average.add(stepped); });
        gradients_->multiplied();
        if (masters_) masters_->after_step();
        if (after_step_) after_step_();
      },
      [&] {
        std::vector<torch::Tensor> values;
        for (const auto& one : held) values.push_back(one.tensor);
        // A rank of a pipeline may hold no parameters.
        return device_memory(values, this, values.empty() ? torch::Device(torch::kCPU) : values.front().device());
      });
  if (rules_.waits) wait();
  return true;
}

void BoostedOptimizer::wait() { gradients_->wait_values(); }

double BoostedOptimizer::loss_scale() const { return scaler_ ? scaler_->scale() : 1; }

void BoostedOptimizer::zero_grad() {
  gradients_->zero();
  set_state(Gradients::kNone);
}

double BoostedOptimizer::grad_norm(double p) {
  if (p != 2) return gradient_norm(*gradients_, mesh_, held_stages_, p);
  // Each rank decides by itself, because the program may have changed gradients on some ranks only.
  if (!part_norms_ || part_norms_->changes != gradients_->changes()) set_part_norms(read_back({part_norms()}));
  return gradient_norm(part_norms_->norms, mesh_);
}

void BoostedOptimizer::set_part_norms(std::vector<double> norms) {
  part_norms_ = {std::move(norms), gradients_->changes()};
}

torch::Tensor BoostedOptimizer::part_norms() const { return gantry::part_norms(*gradients_, mesh_, held_stages_); }

double BoostedOptimizer::clip_grad_norm(double max_norm, double p) {
  const double norm = grad_norm(p);
  if (const double factor = clip_factor(norm, max_norm); factor < 1) gradients_->scale(factor);
  return norm;
}

void BoostedOptimizer::follow(const LrSchedule& schedule) {
  auto& groups = optimizer_->param_groups();
  for (std::size_t i = groups.size(); i-- > 0;) {
    if (!own_rates_[i]) continue;
    const double at = schedule.at(steps_ + 1, i),
                 rate = schedule.unit() == LrSchedule::Unit::kFactor ? at * *own_rates_[i] : at;
    groups[i].options().set_lr(schedule.unit() == LrSchedule::Unit::kDefaultRate ? rate * lr_shares_[i] : rate);
    lr_ = rate;
  }
}

void BoostedOptimizer::set_lr(double lr) {
  if (rules_.lr_schedule)
    throw UsageError({"boosted optimizer",
                      "set_lr() was called, but the learning rate of each step is set by an lr_schedule", "",
                      "pass an LrSchedule made of a function of the step, or boost without an lr_schedule"});
  auto& groups = optimizer_->param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(lr * lr_shares_[i]);
  lr_ = lr;
}

}  // namespace gantry
