// What boosting makes: the model, optimizer and loader of one rank, for the user's own loop.
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

// The model as this rank holds it. execute_pipeline runs it; Loop says who else may.
class BoostedModel {
 public:
  explicit BoostedModel(StageModule module) : module_(std::move(module)) {}

  // For who reads values: under ZeRO 3 with bfloat16 or float16, rows take memory only when they are asked for, by each
  // call, until the next step.
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
  // For who reads none: rows may be away, and stay so.
  const StageModule& stage_module_unmaterialized() const { return module_; }
  torch::nn::Module& module() { return module_.module(); }
  void train(bool on = true) { module_.module().train(on); }
  void eval() { train(false); }

  // UsageError: a pipeline's model has no forward or backward of its own; execute_pipeline runs both.
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

// What a boosted optimizer does beside stepping.
struct StepRules {
  std::optional<LrSchedule> lr_schedule;  // step() sets the rate of its step by it
  std::optional<double> clip_grad_norm;
  bool skip_non_finite = false;           // steps whose norm is not finite, instead of a NumericalError
  std::optional<LossScaleConfig> scaled;  // float16: the loss is scaled, and overflows are skipped
  bool waits = false;                     // step() returns when this rank has the new values of all replicas
};

// The optimizer over the parameters that this rank holds. step() clips with the true global norm when asked to. step()
// of the optimizer that was passed to boost is refused from then on; its zero_grad() is this one's.
class BoostedOptimizer {
 public:
  BoostedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer, std::shared_ptr<GradientBuffers> gradients,
                   std::unique_ptr<MasterParameters> masters, const ProcessGroupMesh& mesh,
                   std::vector<int> held_stages, const StepRules& rules);
  ~BoostedOptimizer();

  // False where the step was skipped, on all ranks alike, as StepRules says. UsageError without a backward since the
  // last step or zero_grad, and for gradients that are not synced, naming sync_gradients. NumericalError, before
  // anything changes, when the norm is not finite, naming the first such parameter, or when a learning rate is not.
  // Collective over the world. Under ZeRO the new values of other replicas are there when the next execute_pipeline
  // runs, or after wait(); in a loop of one's own (Loop::kOwn) when step() returns.
  bool step();
  void wait();
  void zero_grad();
  // The global norm of the reduced gradients before clipping: computed when asked, or by step(). Collective over the
  // world. Gradients may be changed in place after execute_pipeline has synced them, and the norm is theirs; but a
  // change by way of data() is not noticed, since the parts of the norm were read with the loss.
  double grad_norm(double p = 2);
  // Scales every rank's gradients to that norm and returns what it was. Collective over the world.
  double clip_grad_norm(double max_norm, double p = 2);

  // Of parameter groups that have a learning rate of their own, in proportion to it. With an lr_schedule step() sets
  // the rate itself.
  void set_lr(double lr);
  torch::optim::Optimizer& inner() { return *optimizer_; }
  MasterParameters* masters() { return masters_.get(); }  // null where the model's parameters are stepped themselves
  double loss_scale() const;
  LossScaler* loss_scaler() { return scaler_.get(); }  // null but for float16
  // For a loop that looks at no gradient between execute_pipeline and step(), as the Trainer: those of float16 hold the
  // loss scale until step(), which takes it out as it clips or steps, in no pass of its own. Norms are without it, and
  // another optimizer than FusedAdamW steps gradients without it.
  void keep_loss_scale(bool keep) { keeps_loss_scale_ = keep; }
  bool keeps_loss_scale() const { return keeps_loss_scale_; }
  bool skips_non_finite() const { return rules_.skip_non_finite || scaler_ != nullptr; }
  GradientBuffers& gradients() { return *gradients_; }
  // Calls of step(), and those of them that were not skipped: what the optimizer itself has counted.
  std::int64_t steps() const { return steps_; }
  std::int64_t taken_steps() const { return taken_steps_; }
  void set_steps(std::int64_t steps, std::int64_t taken) {
    steps_ = steps;
    taken_steps_ = taken;
  }
  // What execute_pipeline and sync_gradients have done: gradients are being added, or are summed over the ranks.
  void set_synced(bool synced) {
    added_ = synced ? Added::kSynced : Added::kUnsynced;
    norm_.reset();
    part_norms_.reset();
  }
  // Called by step() where it was not skipped, when the optimizer has stepped.
  void set_after_step(std::function<void()> call) { after_step_ = std::move(call); }
  // The norms of the synced gradients' parts on this rank, for somebody who reads more back with them, and as they were
  // read: grad_norm() then reads nothing.
  torch::Tensor part_norms() const;
  void set_part_norms(std::vector<double> norms);
  // Summed gradients that were neither stepped nor zeroed.
  bool has_unused_gradients() const { return added_ == Added::kSynced; }

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<GradientBuffers> gradients_;
  std::unique_ptr<MasterParameters> masters_;
  const ProcessGroupMesh& mesh_;
  std::vector<int> held_stages_;
  StepRules rules_;
  std::unique_ptr<LossScaler> scaler_;
  bool keeps_loss_scale_ = false;
  std::vector<double> lr_shares_;  // of each parameter group
  std::vector<bool> states_lr_;    // whether its options state a learning rate
  std::optional<double> norm_;     // of the gradients as they stand, 2-norm
  struct PartNorms {
    std::vector<double> norms;
    std::uint64_t changes;  // of the gradients, when it was read
  };
  std::optional<PartNorms> part_norms_;
  std::int64_t steps_ = 0, taken_steps_ = 0;
  enum class Added { kNothing, kUnsynced, kSynced };  // to the gradients since the last step or zero_grad
  Added added_ = Added::kNothing;
  std::unique_ptr<StepLatch> latch_;
  std::function<void()> after_step_;

  void require_gradients() const;
  void require_finite_rates() const;
  bool is_finite_step();
};

// Who runs a boosted model.
enum class Loop {
  kPipeline,  // execute_pipeline: the forward and backward of all stages
  // A loop of the user's, by the model's own forward and by backward(). Outputs are whole on every rank, and gradients
  // that are partial sums over tp are summed within the backward. Without a pipeline, and with ZeRO 0 or 1.
  // execute_pipeline runs such a model too.
  kOwn,
};

// What a user passes to boost; all but the model may be absent.
struct BoostRequest {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  Criterion criterion;
  std::shared_ptr<DataLoader> loader;
  std::optional<LrSchedule> lr_schedule;
  Loop loop = Loop::kPipeline;
  std::shared_ptr<const Policy> policy = nullptr;  // null: model.policy's, or the registered one for the model's class
};

struct Boosted {
  std::shared_ptr<BoostedModel> model;
  std::shared_ptr<BoostedOptimizer> optimizer;
  Criterion criterion;
  std::shared_ptr<DataLoader> loader;
  std::optional<LrSchedule> lr_schedule;
};

}  // namespace gantry
