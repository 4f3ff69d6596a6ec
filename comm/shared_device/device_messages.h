// The messages of a group whose ranks share a device, over separate MPI channels.
//
// A head has the caller's tag and the kind of tensor: an absent one, one in host memory, which follows, or
// one on the device, with its location. The receiver copies a device tensor on its own stream and answers
// with the signal after which the copy is complete. Only then does the sender release the memory. A send
// never waits for its receiver: a tensor that the receiver does not own is first copied on the device.
#pragma once

#include <memory>

#include "gantry/comm/processes/group_channel.h"
#include "gantry/comm/shared_device/shared_device_job.h"

namespace gantry {

class DeviceMessages {
 public:
  DeviceMessages(std::shared_ptr<SharedDeviceJob> job, std::shared_ptr<GroupChannel> channel)
      : job_(std::move(job)), channel_(std::move(channel)) {}

  // Both return at once, whether the tensor is on the host or the device.
  void send(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver);
  Work recv(const TensorSpec& spec, int from, const Tag& tag);

 private:
  const std::shared_ptr<SharedDeviceJob> job_;
  const std::shared_ptr<GroupChannel> channel_;
  std::uint64_t sent_ = 0;
};

}  // namespace gantry
