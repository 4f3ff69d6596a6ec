#include "gantry/tensors/saved_tensors.h"

#include <map>
#include <set>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

thread_local std::shared_ptr<SavedTensors> saved_here;

}  // namespace

// Keeps a saved tensor in place of autograd.
class SavedTensorsHook final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedTensorsHook(std::shared_ptr<SavedTensors> saved) : saved_(std::move(saved)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.tensor_data();  // without its node, which would otherwise keep itself alive
    if (tensor.has_storage()) saved_->saved_.emplace_back(tensor_.getIntrusivePtr());
    saved_.reset();
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  std::shared_ptr<SavedTensors> saved_;
  at::Tensor tensor_;
};

namespace {

// LibTorch's engine with default hooks for saved tensors. C++ has no other way to install these.
class NotingEngine final : public torch::autograd::Engine {
 public:
  // LibTorch starts the device threads once per process, for the first engine that runs. This engine starts
  // its own.
  NotingEngine() {
    get_base_engine().initialize_device_threads_pool();
    start_device_threads();
  }
  ~NotingEngine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (!saved_here) return nullptr;
    return std::make_unique<SavedTensorsHook>(saved_here);
  }
};

torch::autograd::Engine& noting_engine() {
  static NotingEngine engine;
  return engine;
}

void use_noting_engine() {
  static const bool used = [] {
    torch::autograd::set_default_engine_stub(&noting_engine);
    return true;
  }();
  (void)used;
}

}  // namespace

std::vector<c10::Storage> SavedTensors::held_by_autograd_alone(std::size_t least) const {
  std::map<c10::StorageImpl*, std::set<c10::TensorImpl*>> tensors;
  std::vector<c10::Storage> found;
  for (const auto& weak : saved_)
    if (const auto tensor = weak.lock()) tensors[tensor->storage().unsafeGetStorageImpl()].insert(tensor.get());
  for (const auto& [storage, of_storage] : tensors) {
    const c10::Storage& its = (*of_storage.begin())->storage();
    if (its.nbytes() >= least && its.allocator() && its.use_count() == of_storage.size()) found.push_back(its);
  }
  return found;
}

SavedTensorsScope::SavedTensorsScope(std::shared_ptr<SavedTensors> saved)
    : former_(std::exchange(saved_here, std::move(saved))) {
  if (saved_here) use_noting_engine();
}

SavedTensorsScope::~SavedTensorsScope() { saved_here = std::move(former_); }

}  // namespace gantry
