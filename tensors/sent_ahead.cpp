#include "gantry/tensors/sent_ahead.h"

#include <algorithm>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

AheadSender::AheadSender(torch::Device device) : device_(device) {
  if (device.is_cpu() || device.is_meta()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  stream_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

std::shared_ptr<SentAhead> AheadSender::send(const TensorDict& tensors) const {
  if (!stream_) return nullptr;
  const torch::NoGradGuard no_grad;
  const c10::DeviceGuard on_device(device_);
  const c10::StreamGuard on_stream(*stream_);
  auto ahead = std::make_shared<SentAhead>();
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !tensor.is_cpu() || tensor.numel() == 0) continue;
    SentAhead::Sent sent{.here = tensor,
                         .version = version_of(tensor),
                         .there = to_device(tensor, device_),
                         .done = c10::Event(device_.type())};
    sent.done.record(*stream_);
    ahead->sent_.push_back(std::move(sent));
  }
  return ahead;
}

torch::Tensor SentAhead::take(const torch::Tensor& tensor, torch::Device device) {
  const auto found = std::find_if(sent_.begin(), sent_.end(), [&](const Sent& sent) {
    return sent.here.is_same(tensor) && sent.there.device() == device;
  });
  if (found == sent_.end()) return {};
  Sent sent = std::move(*found);
  sent_.erase(found);
  if (sent.version != version_of(tensor)) return {};
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream current = guard.getStream(device);
  sent.done.block(current);
  guard.recordDataPtrOnStream(sent.there.storage().data_ptr(), current);
  return sent.there;
}

}  // namespace gantry
