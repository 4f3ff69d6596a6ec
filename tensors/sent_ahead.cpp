#include "gantry/tensors/sent_ahead.h"

#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace gantry {
namespace {

struct Sent {
  c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // of the host's tensor
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0, version = 0;
  torch::ScalarType type = torch::kFloat32;
  torch::Tensor there;
  c10::Event done;

  bool is_of(const torch::Tensor& tensor, torch::Device device) const {
    return tensor.storage().unsafeGetStorageImpl() == memory._unsafe_get_target() && there.device() == device &&
           tensor.storage_offset() == offset && tensor.scalar_type() == type && tensor.sizes() == sizes &&
           tensor.strides() == strides;
  }
};

// Of all ranks of this process; guarded by its mutex. Never destroyed: threads may outlive main.
struct AllSent {
  std::mutex mutex;
  std::list<Sent> under_way;
  std::unordered_map<torch::Device, c10::Stream> streams;  // one a device
};

AllSent& all_sent() {
  static auto* all = new AllSent;
  return *all;
}

std::int64_t version_now(const torch::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
}

c10::Stream copy_stream(AllSent& all, torch::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return all.streams.try_emplace(device, guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false)).first->second;
}

// Their memory is freed by who calls, without the mutex.
std::list<Sent> take_expired(AllSent& all) {
  std::list<Sent> expired;
  for (auto sent = all.under_way.begin(); sent != all.under_way.end();) {
    const auto next = std::next(sent);
    if (sent->memory.expired()) expired.splice(expired.end(), all.under_way, sent);
    sent = next;
  }
  return expired;
}

}  // namespace

void send_ahead(const torch::Tensor& tensor, torch::Device device) {
  if (device.is_cpu() || device.is_meta() || !tensor.defined() || !tensor.is_cpu() || tensor.numel() == 0) return;
  AllSent& all = all_sent();
  const torch::NoGradGuard no_grad;
  const c10::DeviceGuard on_device(device);
  std::optional<c10::Stream> stream;
  std::list<Sent> expired;
  {
    const std::lock_guard lock(all.mutex);
    expired = take_expired(all);
    stream = copy_stream(all, device);
  }
  const c10::StreamGuard on_stream(*stream);
  torch::Tensor pinned = torch::empty(tensor.sizes(), tensor.options().pinned_memory(true));
  Sent sent{.memory = c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()),
            .sizes = tensor.sizes().vec(),
            .strides = tensor.strides().vec(),
            .offset = tensor.storage_offset(),
            .version = version_now(tensor),
            .type = tensor.scalar_type(),
            .there = pinned.copy_(tensor).to(device, /*non_blocking=*/true),
            .done = c10::Event(device.type())};
  sent.done.record(*stream);
  const std::lock_guard lock(all.mutex);
  all.under_way.push_back(std::move(sent));
}

torch::Tensor take_sent(const torch::Tensor& tensor, torch::Device device) {
  if (!tensor.defined() || !tensor.is_cpu() || device.is_cpu() || !tensor.has_storage()) return {};
  AllSent& all = all_sent();
  std::list<Sent> found;
  {
    const std::lock_guard lock(all.mutex);
    for (auto sent = all.under_way.begin(); sent != all.under_way.end(); ++sent)
      if (sent->is_of(tensor, device)) {
        found.splice(found.end(), all.under_way, sent);
        break;
      }
  }
  if (found.empty() || found.front().version != version_now(tensor)) return {};
  Sent& sent = found.front();
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream current = guard.getStream(device);
  sent.done.block(current);
  guard.recordDataPtrOnStream(sent.there.storage().data_ptr(), current);
  return sent.there;
}

void drop_unclaimed() {
  AllSent& all = all_sent();
  std::list<Sent> expired;
  const std::lock_guard lock(all.mutex);
  expired = take_expired(all);
}

}  // namespace gantry
