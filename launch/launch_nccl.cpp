#include <array>
#include <cstdlib>
#include <dlfcn.h>

#include <torch/torch.h>

#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"
#include "gantry/core/error.h"
#include "gantry/launch/backends.h"

namespace gantry {
namespace {

// The driver's interface as cuda.h has it: numbers for results and devices, 16 bytes for a UUID.
using Result = int;
using CountCall = Result (*)(int* count);
using HandleCall = Result (*)(int* device, int ordinal);
using UuidCall = Result (*)(std::array<char, 16>* uuid, int device);

template <class Call>
Call driver_call(void* driver, const char* name) {
  return reinterpret_cast<Call>(::dlsym(driver, name));
}

// Which CUDA devices this process sees, by 16 bytes each in the order of their indices: CUDA_VISIBLE_DEVICES may say
// the same ones in different words, or in another order. Asked of the driver, which is loaded when this is called:
// nothing is linked to it. Empty without a driver or devices; ResourceError for a device that does not say.
std::vector<std::string> visible_device_uuids() {
  // Loaded already where there are devices: LibTorch's CUDA parts stand on it.
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (!driver) return {};
  const auto start = driver_call<Result (*)(unsigned flags)>(driver, "cuInit");
  const auto count_of = driver_call<CountCall>(driver, "cuDeviceGetCount");
  const auto handle_of = driver_call<HandleCall>(driver, "cuDeviceGet");
  auto uuid_of = driver_call<UuidCall>(driver, "cuDeviceGetUuid_v2");  // of a part of a device (MIG), too
  if (!uuid_of) uuid_of = driver_call<UuidCall>(driver, "cuDeviceGetUuid");
  int count = 0;
  if (!start || !count_of || !handle_of || !uuid_of || start(0) != 0 || count_of(&count) != 0) return {};
  std::vector<std::string> uuids;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    std::array<char, 16> uuid{};
    if (handle_of(&device, ordinal) != 0 || uuid_of(&uuid, device) != 0)
      throw ResourceError({"nccl", "CUDA device " + std::to_string(ordinal) + " does not say which one it is",
                           "a UUID of the driver's", "see whether nvidia-smi lists it"});
    uuids.emplace_back(uuid.data(), uuid.size());
  }
  return uuids;
}

}  // namespace

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
  const torch::Device device(torch::kCUDA, static_cast<torch::DeviceIndex>(choose_device_index(question)));
  run_on_device(nccl_options(base, device), base, body);
}

NcclOptions nccl_options(World& base, torch::Device device) {
  NcclOptions options;
  options.device = device;
  options.waits = {base.config().comm.timeout_seconds, base.config().comm.lost_after_seconds};
  options.describe_rank = [&base](int rank) { return base.mesh().describe_rank(rank); };
  // Stages send along pp; other groups' communicators would cost device memory for nothing.
  options.carries_messages = [](const std::string& label) { return label == axis::kPipeline; };
  return options;
}

void run_on_device(NcclOptions options, World& base, const std::function<void(World&)>& body) {
  const c10::DeviceGuard on_device(options.device);
  NcclBackend backend(base.backend(), std::move(options));
  World world(backend, base.config(), base.mesh());
  body(world);
}

}  // namespace gantry
