#include "gantry/plugins/step_offload.h"

#include <algorithm>

#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/optimizers/weight_average.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::size_t kLeastBytes = 1024;  // smaller storages stay: moving them costs more than it frees

// Adds the tensor's storage if it has no other owner. Masters may be in buckets, or be the model's own
// parameters.
void add_where_alone(std::vector<c10::Storage>& storages, const torch::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (storage.nbytes() >= kLeastBytes && storage.allocator() && storage.use_count() == 1) storages.push_back(storage);
}

}  // namespace

StepOffload::StepOffload(schedule::Offload what, BoostedOptimizer& optimizer, std::vector<int> stages,
                         torch::Device device)
    : what_(what), optimizer_(optimizer), stages_(std::move(stages)), rooms_(device) {
  std::ranges::sort(stages_);
}

std::shared_ptr<SavedTensors> StepOffload::begin_forward(int stage, int microbatch) {
  if (!what_.activations) return nullptr;
  return saved_[{stage, microbatch}] = std::make_shared<SavedTensors>();
}

void StepOffload::run(const schedule::Action& action) {
  const Key key{action.stage, action.microbatch};
  switch (action.kind) {
    case schedule::ActionKind::kOffloadState:
      return move_out(key, state_of(action.stage));
    case schedule::ActionKind::kOffload:
      if (const auto saved = saved_.find(key); saved != saved_.end())
        move_out(key, saved->second->held_by_autograd_alone(kLeastBytes));
      return;
    default:
      if (const auto moved = moved_.find(key); moved != moved_.end()) moved->second->start_in();
  }
}

void StepOffload::move_out(const Key& key, std::vector<c10::Storage> storages) {
  if (storages.empty()) return;
  auto moved = std::make_unique<MovedMemory>(rooms_, std::move(storages));
  moved->start_out();
  moved_[key] = std::move(moved);
}

void StepOffload::wait(int stage, int microbatch) {
  const Key key{stage, microbatch};
  if (const auto moved = moved_.find(key); moved != moved_.end()) {
    moved->second->wait();
    moved_.erase(moved);
  }
  saved_.erase(key);
}

void StepOffload::finish() {
  for (auto& [key, moved] : moved_) {
    moved->start_in();  // does nothing if it has already started
    moved->wait();
  }
  moved_.clear();
  saved_.clear();
}

void StepOffload::give_up() noexcept {
  for (auto& [key, moved] : moved_) try {
      moved->start_in();
      moved->wait();
    } catch (...) {  // the first error is reported
    }
  moved_.clear();
  saved_.clear();
}

// The optimizer state of a stage. The state of a parameter that several stages share belongs to the lowest of
// them on this rank. A parameter of no stage here counts for the lowest stage of the rank.
std::vector<c10::Storage> StepOffload::state_of(int stage) const {
  std::vector<c10::Storage> storages;
  const GradientBuffers& gradients = optimizer_.gradients();
  auto& inner = optimizer_.inner();
  const auto& parameters = gradients.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& on = parameters[i].placement.stages;
    const auto mine = std::ranges::find_if(stages_, [&](int each) { return std::ranges::find(on, each) != on.end(); });
    if ((mine == stages_.end() ? stages_.front() : *mine) != stage || !gradients.trained(i)) continue;
    const auto* masters = optimizer_.masters();
    const torch::Tensor& stepped = masters ? masters->master(i) : parameters[i].tensor;
    if (!stepped.is_same(parameters[i].tensor)) add_where_alone(storages, stepped);
    if (inner.state().count(stepped.unsafeGetTensorImpl()) == 0) continue;  // no step has created it yet
    for (const auto& [name, tensor] : optimizer_tensors(inner, stepped)) add_where_alone(storages, tensor);
    if (WeightAverage* average = optimizer_.average()) add_where_alone(storages, average->of(stepped));
  }
  return storages;
}

}  // namespace gantry
