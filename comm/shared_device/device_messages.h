// The messages of a group whose ranks share a device, over an MPI channel of their own.
//
// A head has the caller's tag and says what comes: nothing, a tensor of the host's, which follows, or one on the
// device, and where it is. The receiver copies that on its own stream and answers with the signal behind which it is
// copied; only then does the sender let go of the memory. A send never waits for its receiver: what is not given away
// is copied on the device first.
#pragma once

#include <memory>

#include "gantry/comm/processes/group_channel.h"
#include "gantry/comm/shared_device/shared_device_job.h"

namespace gantry {

class DeviceMessages {
 public:
  DeviceMessages(std::shared_ptr<SharedDeviceJob> job, std::shared_ptr<GroupChannel> channel)
      : job_(std::move(job)), channel_(std::move(channel)) {}

  // Both are done at once, wherever the tensor is.
  void send(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver);
  Work recv(const TensorSpec& spec, int from, const Tag& tag);

 private:
  const std::shared_ptr<SharedDeviceJob> job_;
  const std::shared_ptr<GroupChannel> channel_;
  std::uint64_t sent_ = 0;
};

}  // namespace gantry
