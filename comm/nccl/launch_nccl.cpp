#include <cstdlib>

#include <torch/torch.h>

#include "gantry/comm/backends.h"
#include "gantry/comm/nccl/cuda_uuids.h"
#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"

namespace gantry {

bool has_cuda_devices() {
  return c10::impl::hasDeviceGuardImpl(torch::kCUDA) && c10::impl::getDeviceGuardImpl(torch::kCUDA)->deviceCount() > 0;
}

void prepare_nccl() {
  // Connections that were made by the first call of a kind would make its caller wait for its peers: all at once.
  ::setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  // Streams that share a hardware queue wait behind each other: a communicator a direction and group, and the compute.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

void run_on_nccl(World& base, const std::function<void(World&)>& body) {
  DeviceQuestion question =
      ask_for_device(base.backend(), has_cuda_devices() ? visible_device_uuids() : std::vector<std::string>());
  question.nccl_version = nccl_version();
  NcclOptions options;
  options.device = {torch::kCUDA, static_cast<torch::DeviceIndex>(choose_device_index(question))};
  options.waits = {base.config().comm.timeout_seconds, base.config().comm.lost_after_seconds};
  options.describe_rank = [&base](int rank) { return base.mesh().describe_rank(rank); };
  // Stages send along pp; other groups' communicators would cost device memory for nothing.
  options.carries_messages = [](const std::string& label) { return label == "pp"; };
  const c10::DeviceGuard on_device(options.device);
  NcclBackend backend(base.backend(), std::move(options));
  World world(backend, base.config(), base.mesh());
  body(world);
}

}  // namespace gantry
