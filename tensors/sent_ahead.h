// Tensors of the host's that travel to a device before they are asked for: the next batch, while the device computes
// the present step. The copy goes through pinned memory on a stream of its own, and whoever takes it makes the current
// stream wait for it, not the host.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry {

// Begins to send the tensor. Nothing to do for the CPU and the meta device, and for a tensor that lies on a device. For
// any thread.
void send_ahead(const torch::Tensor& tensor, torch::Device device);

// The copy of `tensor` on `device` that was sent ahead, contiguous, for use on this thread's current stream; once.
// Undefined where there is none, or where the tensor was changed in place since.
torch::Tensor take_sent(const torch::Tensor& tensor, torch::Device device);

// Lets go of copies whose tensors are gone: batches that nobody took.
void drop_unclaimed();

}  // namespace gantry
