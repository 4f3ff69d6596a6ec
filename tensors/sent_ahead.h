// Copies of host tensors to a device, started in advance: the next batch is copied while the device computes
// the current step. Copies go through pinned memory on a separate stream. When a copy is taken, the current
// stream waits for it, not the host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Copies in flight. The destructor frees those that were not taken.
class SentAhead {
 public:
  // Returns the copy of `tensor`, contiguous, for use on this thread's current stream. Works once per tensor.
  // Undefined if this tensor object was not sent to `device`, or was changed in place since.
  torch::Tensor take(const torch::Tensor& tensor, torch::Device device);

 private:
  friend class AheadSender;
  struct Sent {
    torch::Tensor here;
    std::int64_t version;
    torch::Tensor there;
    c10::Event done;
  };
  std::vector<Sent> sent_;
};

// Sends to one device, on one stream. One thread at a time may use it.
class AheadSender {
 public:
  explicit AheadSender(torch::Device device);
  // Starts to send those of `tensors` that are on the host and not empty. Returns null if the device is the
  // CPU or the meta device.
  std::shared_ptr<SentAhead> send(const TensorDict& tensors) const;

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace gantry
