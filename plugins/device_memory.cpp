#include "gantry/plugins/device_memory.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>

#include <c10/core/CachingDeviceAllocator.h>

#include "gantry/optimizers/optimizer_memory.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string gib(std::int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

// Counts memory on the device; each storage counts once.
class Counter {
 public:
  explicit Counter(torch::Device device) : device_(device) {}
  std::int64_t count(const torch::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != device_.type() || !tensor.has_storage()) return 0;
    const auto& storage = tensor.storage();
    return counted_.insert(storage.unsafeGetStorageImpl()).second ? static_cast<std::int64_t>(storage.nbytes()) : 0;
  }

 private:
  torch::Device device_;
  std::set<const c10::StorageImpl*> counted_;
};

struct Part {
  std::int64_t bytes;
  const char* remedy;
};

// Returns the changes that make the largest part smaller, in the order of the table in docs/layouts.md.
const char* remedy_for(const DeviceMemory& memory) {
  const std::array<Part, 3> parts{
      Part{memory.other,
           "use parallel.sequence_parallel with tensor ranks, a smaller schedule.microbatch_size, schedule.recompute, "
           "or more context ranks"},
      Part{memory.parameters + memory.gradients,
           "use parallel.zero 2 or 3 with more data ranks, or more tensor or pipeline ranks"},
      Part{memory.optimizer + memory.first_step,
           "use parallel.zero 1 with more data ranks, or more tensor or pipeline ranks"}};
  return std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.bytes < b.bytes; })
      ->remedy;
}

std::string describe_parts(const DeviceMemory& memory) {
  return fmt::format("parameters {}, gradients {}, optimizer {}, activations and messages {}", gib(memory.parameters),
                     gib(memory.gradients), gib(memory.optimizer), gib(memory.other));
}

}  // namespace

DeviceMemory device_memory(const StageModule& model, BoostedOptimizer* optimizer, torch::Device device) {
  std::vector<torch::Tensor> values;
  for (const auto& held : model.parameters) values.push_back(held.tensor);
  for (const auto& held : model.buffers) values.push_back(held.tensor);
  return device_memory(values, optimizer, device);
}

DeviceMemory device_memory(const std::vector<torch::Tensor>& values, BoostedOptimizer* optimizer,
                           torch::Device device) {
  DeviceMemory memory{.device = device.str()};
  Counter counter(device);
  for (const auto& value : values) memory.parameters += counter.count(value);
  for (const auto& value : values) memory.gradients += counter.count(value.grad());
  if (optimizer) {
    for (const auto& group : optimizer->inner().param_groups())
      for (const auto& stepped : group.params()) memory.optimizer += counter.count(stepped);
    const OptimizerBytes states = optimizer_bytes(optimizer->inner());
    memory.optimizer += states.held;
    memory.first_step = states.to_come;
  }
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (!allocator) return memory;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = allocator->getDeviceStats(device.index());
  const std::int64_t allocated = stats.allocated_bytes[kAll].current;
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  memory.other = std::max<std::int64_t>(0, allocated - memory.parameters - memory.gradients - memory.optimizer);
  memory.total = static_cast<std::int64_t>(total);
  memory.free = static_cast<std::int64_t>(free) + stats.reserved_bytes[kAll].current - allocated;
  return memory;
}

ResourceError no_device_memory(const DeviceMemory& memory) {
  return ResourceError({"memory",
                        fmt::format("an allocation on {} failed, which contains {} of {}", memory.device,
                                    describe_parts(memory), gib(memory.total)),
                        "memory for a step", remedy_for(memory)});
}

void check_first_step(const DeviceMemory& memory) {
  if (memory.total == 0 || memory.first_step <= memory.free) return;
  throw ResourceError(
      {"memory",
       fmt::format("the optimizer's first step needs {} on {}, which has {} left of {} in addition to {}",
                   gib(memory.first_step), memory.device, gib(memory.free), gib(memory.total), describe_parts(memory)),
       "memory for a step", remedy_for(memory)});
}

void naming_device_memory(const std::function<void()>& body, const std::function<DeviceMemory()>& memory) {
  try {
    body();
  } catch (const c10::OutOfMemoryError&) {
    throw no_device_memory(memory());
  }
}

}  // namespace gantry
