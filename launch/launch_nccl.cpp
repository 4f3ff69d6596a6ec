#include <cstdlib>
#include <optional>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/cuda_driver.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

bool has_cuda_devices() {
  return c10::impl::hasDeviceGuardImpl(torch::kCUDA) && c10::impl::getDeviceGuardImpl(torch::kCUDA)->deviceCount() > 0;
}

void prepare_nccl(int ranks) {
  // Makes all connections of a communicator when it is created. Otherwise the first call of each kind would
  // connect, and wait for its peers.
  ::setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  // Streams that share a hardware queue wait for each other. There is one stream for each communicator (per
  // group and direction), and the compute stream.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  // Loading a kernel at its first use may wait for all work on its device. That may include a message that
  // waits for another rank, which may be loading a kernel too.
  if (ranks > 1) ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

void run_on_nccl(World& base, const std::function<void(World&)>& body) {
  const CudaDriverCalls driver;
  driver.require("nccl");
  DeviceQuestion question =
      ask_for_device(base.backend(), has_cuda_devices() ? driver.uuids() : std::vector<std::string>());
  question.nccl_version = nccl_version();
  const torch::Device device(torch::kCUDA, static_cast<torch::DeviceIndex>(choose_device_index(question)));
  driver.require_device("nccl", device);
  run_on_device(nccl_options(base, device), base, body);
}

NcclOptions nccl_options(World& base, torch::Device device) {
  NcclOptions options;
  options.device = device;
  options.waits = {base.config().comm.timeout_seconds, base.config().comm.lost_after_seconds};
  options.registers_memory = base.config().comm.registered_buffers;
  options.sums_by_rank = base.config().comm.sums_by_rank;
  options.describe_rank = [&base](int rank) { return base.mesh().describe_rank(rank); };
  // Pipeline stages send along pp. Communicators for messages of other groups would only cost device memory.
  options.carries_messages = neighbours_send;
  return options;
}

void run_on_device(NcclOptions options, World& base, const std::function<void(World&)>& body) {
  const c10::DeviceGuard on_device(options.device);
  // The default stream of a device does not support CUDA graph capture.
  std::optional<c10::StreamGuard> on_own_stream;
  if (base.config().train.device_graphs) {
    const c10::impl::VirtualGuardImpl device(options.device.type());
    on_own_stream.emplace(device.getStreamFromGlobalPool(options.device));
  }
  NcclBackend backend(base.backend(), std::move(options));
  World world(backend, base.config(), base.mesh());
  body(world);
}

}  // namespace gantry
