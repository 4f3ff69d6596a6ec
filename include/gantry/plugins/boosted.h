// The result of Booster::boost() on one rank: model, optimizer, criterion, loader and learning-rate schedule.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "gantry/data/data_loader.h"
#include "gantry/optimizers/lr_schedule.h"
#include "gantry/plugins/criterion.h"
#include "gantry/policies/sharder.h"

namespace gantry {

class GradientBuffers;
class LossScaler;
class MasterParameters;
class ProcessGroupMesh;
class StepLatch;
class WeightAverage;

// The part of the model that this rank holds. Run it with execute_pipeline() or, if it was boosted with Loop::kOwn, by
// its own forward().
class BoostedModel {
 public:
  explicit BoostedModel(StageModule module) : module_(std::move(module)) {}

  // Access to parameter values. With ZeRO 3 in bfloat16 or float16, a step releases this rank's shard, because the
  // float32 master weights hold the same values. This call restores it until the next step, so call it after each step
  // and do not keep the reference.
  StageModule& stage_module() {
    materialize_shard();
    return module_;
  }
  const StageModule& stage_module() const {
    materialize_shard();
    return module_;
  }
  void materialize_shard() const {
    if (module_.materialize_shard) module_.materialize_shard();
  }
  // The same without restoring the shard: parameters may have no memory. Use it for names, placements and layer ranges.
  const StageModule& stage_module_unmaterialized() const { return module_; }
  torch::nn::Module& module() { return module_.module(); }
  void train(bool on = true) { module_.module().train(on); }
  void eval() { train(false); }

  // Throws UsageError: execute_pipeline() runs forward and backward of all stages.
  template <class... Inputs>
  TensorDict forward(Inputs&&...) const {
    refuse_call("forward");
  }
  template <class... Inputs>
  void backward(Inputs&&...) const {
    refuse_call("backward");
  }

 private:
  [[noreturn]] static void refuse_call(const char* name);
  StageModule module_;
};

// Settings of BoostedOptimizer::step().
struct StepRules {
  std::optional<LrSchedule> lr_schedule;  // if given, it sets the learning rate of every step
  std::optional<double> clip_grad_norm;
  bool skip_non_finite = false;           // skip a step whose gradient norm is not finite; false: NumericalError
  std::optional<LossScaleConfig> scaled;  // float16: dynamic loss scaling, which skips steps that overflow
  double ema = 0;                         // decay of the moving average of the parameters; 0: none
  bool waits = false;                     // step() returns only after the new values of all replicas have arrived
};

// The optimizer for the parameters that this rank holds. Do not use the optimizer that was passed to boost() any more:
// its step() throws UsageError, and its zero_grad() calls this one's.
class BoostedOptimizer {
 public:
  BoostedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer, std::shared_ptr<GradientBuffers> gradients,
                   std::unique_ptr<MasterParameters> masters, const ProcessGroupMesh& mesh,
                   std::vector<int> held_stages, const StepRules& rules);
  ~BoostedOptimizer();

  // Takes one optimizer step: sets the learning rate, clips the gradients by their global norm if configured, and
  // updates the parameters. Returns false if the step was skipped (see StepRules), which is the same on all ranks.
  // Collective over the world.
  // Throws UsageError if there was no backward since the last step or zero_grad(), or if the gradients are not synced
  // yet (see sync_gradients()). Throws NumericalError, before any change, if a learning rate or the gradient norm is
  // not finite; the error names the first parameter with such a gradient.
  // With ZeRO, the new values of other replicas have arrived when the next execute_pipeline() uses them, or after
  // wait(). With Loop::kOwn they have arrived when step() returns.
  bool step();
  // The same with the norm that grad_norm() returned last. Without ZeRO, it needs no other rank.
  bool step(double norm);
  const ProcessGroupMesh& mesh() const { return mesh_; }
  // Waits until the new values of all replicas have arrived (see step()).
  void wait();
  // Sets all gradients to zero. Call it after each step. Between calls under no_sync(), it drops the accumulated
  // gradients and their token count.
  void zero_grad();
  // Returns the global norm of the reduced gradients before clipping. Collective over the world. Changes in place are
  // included. Only changes through data() after execute_pipeline() are not detected, because the parts of the 2-norm
  // were read together with the loss.
  double grad_norm(double p = 2);
  // Scales the gradients so that their global norm is at most `max_norm`, and returns the norm before scaling.
  // Collective over the world.
  double clip_grad_norm(double max_norm, double p = 2);

  // Sets the learning rate. A parameter group with its own rate keeps the ratio of that rate to the optimizer's default
  // rate. Throws UsageError if there is an lr_schedule, which sets the rates of each step.
  void set_lr(double lr);
  // Returns the learning rate: after step(), that of the step. Parameter groups with a rate of their own differ from it
  // by their ratio; with an LrSchedule made of a function, or without a peak, it is the rate of the first group.
  double lr() const { return lr_; }
  torch::optim::Optimizer& inner() { return *optimizer_; }
  // Returns the tensor that the optimizer updates for a held parameter: its master weight, or the parameter itself.
  const torch::Tensor& stepped(std::size_t parameter) const;
  WeightAverage* average() { return average_.get(); }  // null without StepRules::ema
  // Exchanges the values of the parameters with their averages, for example to evaluate them; the next call restores
  // both exactly. Until then, step() and saving throw UsageError. Throws UsageError without StepRules::ema.
  // Collective over the world.
  void exchange_averages();
  void require_weights() const;                           // throws UsageError between two calls of exchange_averages()
  MasterParameters* masters() { return masters_.get(); }  // null if the optimizer updates the model's own parameters
  double loss_scale() const;
  LossScaler* loss_scaler() { return scaler_.get(); }  // null except in float16
  // True: in float16 the gradients keep the loss scale until step(), which removes it together with clipping and so
  // saves a pass over the gradients. Only for programs that do not read gradients between execute_pipeline() and
  // step(), such as the Trainer. Norms never include the scale.
  void keep_loss_scale(bool keep) { keeps_loss_scale_ = keep; }
  bool keeps_loss_scale() const { return keeps_loss_scale_; }
  bool skips_non_finite() const { return rules_.skip_non_finite || scaler_ != nullptr; }
  GradientBuffers& gradients() { return *gradients_; }
  // Number of calls of step(), and number of those that were not skipped (the optimizer's own step count).
  std::int64_t steps() const { return steps_; }
  std::int64_t taken_steps() const { return taken_steps_; }
  void set_steps(std::int64_t steps, std::int64_t taken) {
    steps_ = steps;
    taken_steps_ = taken;
  }
  // The state of the gradients. step() and zero_grad() set it to kNone.
  enum class Gradients {
    kNone,    // no backward since the last step or zero_grad()
    kAdding,  // accumulated on each rank, not reduced
    kSummed,  // reduced over the ranks, neither applied nor zeroed
    kBroken,  // execute_pipeline() threw; the next call starts with zero gradients
  };
  Gradients state() const { return state_; }
  // Called by execute_pipeline() and sync_gradients().
  void set_state(Gradients state) {
    state_ = state;
    part_norms_.reset();
  }
  // Sets a function that step() calls after the optimizer has updated the parameters.
  void set_after_step(std::function<void()> call) { after_step_ = std::move(call); }
  // Returns the norms of this rank's parts of the synced gradients, as a device tensor. A caller that copies it to the
  // host together with other values passes the result to set_part_norms(), so that grad_norm() needs no further copy.
  torch::Tensor part_norms() const;
  void set_part_norms(std::vector<double> norms);

 private:
  void visit_averages(void (*visit)(WeightAverage& average, const torch::Tensor& stepped));

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<GradientBuffers> gradients_;
  std::unique_ptr<MasterParameters> masters_;
  const ProcessGroupMesh& mesh_;
  std::vector<int> held_stages_;
  StepRules rules_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<WeightAverage> average_;
  bool holds_averages_ = false;
  bool keeps_loss_scale_ = false;
  std::vector<double> lr_shares_;  // per parameter group: its learning rate / the default learning rate
  double lr_ = 0;
  // Per parameter group: the learning rate with which the optimizer was made, if its options have one.
  std::vector<std::optional<double>> own_rates_;
  struct PartNorms {
    std::vector<double> norms;
    std::uint64_t changes;  // value of GradientBuffers::changes() when the norms were read
  };
  std::optional<PartNorms> part_norms_;
  std::int64_t steps_ = 0, taken_steps_ = 0;
  Gradients state_ = Gradients::kNone;
  std::unique_ptr<StepLatch> latch_;
  std::function<void()> after_step_;

  void prepare_step();
  bool take_step(double norm);
  void require_gradients() const;
  void follow(const LrSchedule& schedule);
  void require_finite_rates() const;
  bool is_finite_step(double norm);
};

// The code that runs the forward and backward passes of a boosted model.
enum class Loop {
  kPipeline,  // execute_pipeline(), for all stages
  // The program, which calls the model's own forward() and backward(). Every rank gets the full outputs, and gradients
  // are reduced over tp within backward(). Requires parallel.pipeline, context and expert 1, and ZeRO 0 or 1.
  // execute_pipeline() works for such a model too.
  kOwn,
};

// The arguments of Booster::boost(). Only the model is required.
struct BoostRequest {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  Criterion criterion;
  std::shared_ptr<DataLoader> loader;
  std::optional<LrSchedule> lr_schedule;
  Loop loop = Loop::kPipeline;
  std::shared_ptr<const Policy> policy = nullptr;  // null: by model.policy, or by the class of the model
};

// The result of Booster::boost(). Entries that were not passed are null or empty. `model` and `optimizer` can outlive
// the Booster, but not the body of launch().
struct Boosted {
  std::shared_ptr<BoostedModel> model;
  std::shared_ptr<BoostedOptimizer> optimizer;
  Criterion criterion;  // read by each execute_pipeline(), so it can be replaced; see ExecuteOptions::criterion
  std::shared_ptr<DataLoader> loader;
};

}  // namespace gantry
