#include "gantry/tensors/host_copy.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include <ATen/record_function.h>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

struct Known {
  torch::Tensor tensor, host;
  std::int64_t version = 0;
};

// The table has the storage as its key, which views share. It keeps the tensor, so that its memory is not
// used for another one.
// The mutex is needed because recomputed layers call on_host() on threads of autograd.
struct AllKnown {
  std::mutex mutex;
  std::unordered_map<c10::StorageImpl*, Known> by_memory;
};

AllKnown& all_known() {
  static auto* all = new AllKnown;  // never destroyed: threads may outlive main
  return *all;
}

}  // namespace

std::int64_t version_of(const torch::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
}

torch::Tensor to_device(const torch::Tensor& tensor, torch::Device device) {
  if (device.is_cpu() || device.is_meta()) return tensor.contiguous().to(device);
  // A new pinned tensor, because the user may overwrite an already pinned one before the copy is complete.
  torch::Tensor pinned = torch::empty(tensor.sizes(), tensor.options().pinned_memory(true));
  return pinned.copy_(tensor).to(device, /*non_blocking=*/true);
}

HostCopy::HostCopy(const torch::Tensor& tensor, const torch::Tensor& host) {
  if (!host.defined() || tensor.is_cpu() || !tensor.is_contiguous()) return;
  AllKnown& all = all_known();
  const std::lock_guard lock(all.mutex);
  auto* memory = tensor.storage().unsafeGetStorageImpl();
  if (all.by_memory.emplace(memory, Known{tensor, host.contiguous(), version_of(tensor)}).second) memory_ = memory;
}

HostCopy::HostCopy(HostCopy&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}

HostCopy& HostCopy::operator=(HostCopy&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

HostCopy::~HostCopy() {
  if (!memory_) return;
  Known forgotten;  // freed without the lock
  AllKnown& all = all_known();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_memory.find(memory_);
  forgotten = std::move(found->second);
  all.by_memory.erase(found);
}

CountedNumbers::CountedNumbers(std::int64_t count, const torch::TensorOptions& options)
    : numbers(torch::arange(count, options)) {
  if (!numbers.is_cpu() && !numbers.is_meta())
    of_host = HostCopy(numbers, torch::arange(count, options.device(torch::kCPU)));
}

torch::Tensor on_host(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  if (!tensor.has_storage()) return {};
  AllKnown& all = all_known();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_memory.find(tensor.storage().unsafeGetStorageImpl());
  if (found == all.by_memory.end()) return {};
  const auto& [full, host, version] = found->second;
  if (tensor.scalar_type() != host.scalar_type() || version_of(tensor) != version) return {};
  return host.as_strided(tensor.sizes(), tensor.strides(),
                         host.storage_offset() + tensor.storage_offset() - full.storage_offset());
}

void check_on_device(const torch::Tensor& condition, const char* message) {
  if (!condition.is_meta()) at::_assert_async(condition.all(), message);
}

std::vector<double> read_back(const std::vector<torch::Tensor>& tensors) {
  if (tensors.empty()) return {};
  RECORD_FUNCTION("gantry::read_back", std::vector<c10::IValue>{});
  const torch::NoGradGuard no_grad;
  torch::Device device = torch::kCPU;
  for (const auto& tensor : tensors)
    if (!tensor.is_cpu()) device = tensor.device();
  std::vector<torch::Tensor> flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.detach().reshape({-1}).to(device, torch::kFloat64));
  const torch::Tensor all = torch::cat(flat).to(torch::kCPU);
  const auto* numbers = all.const_data_ptr<double>();
  return {numbers, numbers + all.numel()};
}

double number_of(const torch::Tensor& scalar) {
  if (!scalar.is_cpu()) return read_back({scalar}).front();
  return *scalar.detach().to(torch::kFloat64).const_data_ptr<double>();
}

}  // namespace gantry
