// Tensors of the host's that travel to a device before they are asked for: the next batch, while the device computes
// the present step. The copy goes through pinned memory on a stream of its own. Whoever takes it makes the current
// stream wait for it, not the host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Copies on their way. What nobody takes is freed with it.
class SentAhead {
 public:
  // The copy of `tensor`, contiguous, for use on this thread's current stream; once. Undefined where that very tensor
  // was not sent to `device`, or was changed in place since.
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

// Sends to one device, on one stream. For one thread at a time.
class AheadSender {
 public:
  explicit AheadSender(torch::Device device);
  // Begins to send the host's tensors that are not empty. Null where `device` is the CPU or the meta device.
  std::shared_ptr<SentAhead> send(const TensorDict& tensors) const;

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace gantry
