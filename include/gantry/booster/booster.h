// The user's entry: boosts a model, an optimizer, a criterion and a loader by a plugin, and runs their steps.
#pragma once

#include <memory>
#include <utility>

#include "gantry/generation/generate.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

class Booster {
 public:
  explicit Booster(std::unique_ptr<Plugin> plugin) : plugin_(std::move(plugin)) {}

  // Splits the model as the plugin's configuration says. `model` is a shared_ptr to a module, or a module holder
  // (TORCH_MODULE); optimizer, criterion, loader and lr_schedule may be left out. Collective over the world.
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

  // One forward and backward of this replica's batch through the pipeline. Collective over the world.
  StepResult execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options = {}) {
    return plugin_->execute_pipeline(batch, boosted, options);
  }

  // While the guard lives, execute_pipeline adds to unreduced gradients: of this model, or of all. The last call
  // outside it, or sync_gradients, reduces.
  class NoSync {
   public:
    explicit NoSync(Plugin& plugin, const Boosted* boosted) : plugin_(plugin), boosted_(boosted) {
      plugin_.set_no_sync(true, boosted_);
    }
    ~NoSync() { plugin_.set_no_sync(false, boosted_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Plugin& plugin_;
    const Boosted* boosted_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*plugin_, nullptr); }
  [[nodiscard]] NoSync no_sync(const Boosted& boosted) { return NoSync(*plugin_, &boosted); }
  // Also after the backwards of a loop of one's own, as plugin.h says.
  void sync_gradients(Boosted& boosted) { plugin_->sync_gradients(boosted); }

  // What plugin.h says of each.
  ProcessGroupMesh& mesh() { return plugin_->mesh(); }
  StateSource& state(Boosted& boosted) { return plugin_->state(boosted); }
  void distribute(DataLoader& loader, const Boosted& boosted) { plugin_->distribute(loader, boosted); }
  void audit(Boosted& boosted) { plugin_->audit(boosted); }
  // As generation/generate.h says. Collective over the world.
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
