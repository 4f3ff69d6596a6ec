// The main entry point: boosts a model, an optimizer, a criterion and a loader with a plugin, and runs their training
// steps.
#pragma once

#include <memory>
#include <utility>

#include "gantry/generation/generate.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

// Boosts models with one plugin, and runs their training steps. Not copyable. Boosted models and optimizers can outlive
// it, but not the body of launch().
class Booster {
 public:
  explicit Booster(std::unique_ptr<Plugin> plugin) : plugin_(std::move(plugin)) {}

  // Parallelizes the model in place according to the plugin's configuration; use only the result afterwards, which
  // shares the ownership. `model` is a shared_ptr to a module, or a module holder (TORCH_MODULE). Optimizer, criterion,
  // loader and lr_schedule are optional. The optimizer must hold the model's parameters, and must not have made a step.
  // Throws ConfigError if the model has no policy or does not fit the layout, and UsageError for the optimizer.
  // Collective over the world.
  template <class Model>
  Boosted boost(const Model& model, const std::shared_ptr<torch::optim::Optimizer>& optimizer = nullptr,
                const Criterion& criterion = {}, const std::shared_ptr<DataLoader>& loader = nullptr,
                const std::optional<LrSchedule>& lr_schedule = std::nullopt) {
    return boost(BoostRequest{.model = module_of(model),
                              .optimizer = optimizer,
                              .criterion = criterion,
                              .loader = loader,
                              .lr_schedule = lr_schedule});
  }
  Boosted boost(BoostRequest request) { return plugin_->boost(std::move(request)); }

  // Runs forward and backward of this replica's batch through the pipeline; all tp, pp and cp ranks of a replica pass
  // the same batch. Call boosted.optimizer->step() and zero_grad() afterwards. Errors: see Plugin::execute_pipeline().
  // Collective over the world.
  StepResult execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options = {}) {
    return plugin_->execute_pipeline(batch, boosted, options);
  }

  // While this guard exists, execute_pipeline() accumulates the gradients of this model, or of all models, without
  // reducing them. The next execute_pipeline() without a guard, or sync_gradients(), reduces them. Guards can be
  // nested, and a guard can outlive the Booster.
  class NoSync {
   public:
    explicit NoSync(std::shared_ptr<int> guards) : guards_(std::move(guards)) { ++*guards_; }
    ~NoSync() { --*guards_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<int> guards_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(plugin_->no_sync_guards(nullptr)); }
  [[nodiscard]] NoSync no_sync(const Boosted& boosted) { return NoSync(plugin_->no_sync_guards(&boosted)); }
  // Call it also after backward() in your own training loop; see Plugin::sync_gradients. Collective over the world.
  void sync_gradients(Boosted& boosted) { plugin_->sync_gradients(boosted); }

  // For these functions, see the same functions of Plugin.
  ProcessGroupMesh& mesh() { return plugin_->mesh(); }
  StateSource& state(Boosted& boosted) { return plugin_->state(boosted); }
  void distribute(DataLoader& loader, const Boosted& boosted) { plugin_->distribute(loader, boosted); }
  void audit(Boosted& boosted) { plugin_->audit(boosted); }
  // See gantry::generate(). Collective over the world.
  std::vector<GeneratedSequence> generate(Boosted& boosted, const std::vector<TokenIds>& prompts,
                                          const GenerationOptions& options = {}) {
    return gantry::generate(boosted, *plugin_, prompts, options);
  }

  Plugin& plugin() { return *plugin_; }

 private:
  static std::shared_ptr<torch::nn::Module> module_of(const std::shared_ptr<torch::nn::Module>& model) { return model; }
  template <class Holder>
  requires requires(const Holder& holder) { holder.ptr(); }
  static std::shared_ptr<torch::nn::Module> module_of(const Holder& holder) { return holder.ptr(); }
  template <class Derived>
  requires std::is_base_of_v<torch::nn::Module, Derived>
  static std::shared_ptr<torch::nn::Module> module_of(const std::shared_ptr<Derived>& model) { return model; }

  std::unique_ptr<Plugin> plugin_;
};

}  // namespace gantry
