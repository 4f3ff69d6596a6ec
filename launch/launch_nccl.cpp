#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <optional>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include "gantry/comm/nccl/device_fitness.h"
#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"
#include "gantry/core/error.h"
#include "gantry/launch/backends.h"

namespace gantry {
namespace {

// The driver's interface as cuda.h has it: numbers for results, devices and attributes, 16 bytes for a UUID. The driver
// is loaded when it is asked: nothing is linked to it.
class Driver {
 public:
  // Loaded already where there are devices: LibTorch's CUDA parts stand on it.
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_LAZY)) {
    const auto start = call<Result (*)(unsigned flags)>("cuInit");
    const auto version_of = call<Result (*)(int* version)>("cuDriverGetVersion");
    if (!start || !version_of) return;
    version_of(&says_.version);
    if (const Result result = start(0); result != kSuccess && result != kNoDevice) says_.error = words_for(result);
    const auto count_of = call<Result (*)(int* count)>("cuDeviceGetCount");
    if (says_.error.empty() && count_of) count_of(&count_);
  }

  const CudaDriver& says() const { return says_; }

  // Which CUDA devices this process sees, by 16 bytes each in the order of their indices: CUDA_VISIBLE_DEVICES may say
  // the same ones in different words, or in another order. ResourceError for a device that does not say.
  std::vector<std::string> uuids() const {
    using UuidCall = Result (*)(std::array<char, 16> * uuid, int device);
    auto uuid_of = call<UuidCall>("cuDeviceGetUuid_v2");  // of a part of a device (MIG), too
    if (!uuid_of) uuid_of = call<UuidCall>("cuDeviceGetUuid");
    std::vector<std::string> uuids;
    for (int ordinal = 0; ordinal < count_; ++ordinal) {
      std::array<char, 16> uuid{};
      if (!uuid_of || uuid_of(&uuid, handle_of(ordinal)) != kSuccess)
        throw ResourceError({"nccl", "CUDA device " + std::to_string(ordinal) + " does not say which one it is",
                             "a UUID of the driver's", "see whether nvidia-smi lists it"});
      uuids.emplace_back(uuid.data(), uuid.size());
    }
    return uuids;
  }

  // What it says of a device, but for whether it may be used.
  CudaDevice device(int ordinal) const {
    constexpr int kComputeMode = 20, kCapabilityMajor = 75, kCapabilityMinor = 76, kDefaultMode = 0;
    CudaDevice device{.ordinal = ordinal};
    std::array<char, 256> name{};
    if (const auto name_of = call<Result (*)(char* name, int length, int device)>("cuDeviceGetName"))
      name_of(name.data(), static_cast<int>(name.size()) - 1, handle_of(ordinal));
    device.name = name.data();
    device.capability = 10 * attribute(kCapabilityMajor, ordinal) + attribute(kCapabilityMinor, ordinal);
    device.exclusive = attribute(kComputeMode, ordinal) != kDefaultMode;
    return device;
  }

 private:
  using Result = int;
  static constexpr Result kSuccess = 0, kNoDevice = 100;

  template <class Call>
  Call call(const char* name) const {
    return library_ ? reinterpret_cast<Call>(::dlsym(library_, name)) : nullptr;
  }
  int handle_of(int ordinal) const {
    int device = ordinal;
    if (const auto handle = call<Result (*)(int* device, int ordinal)>("cuDeviceGet")) handle(&device, ordinal);
    return device;
  }
  int attribute(int which, int ordinal) const {
    int value = 0;
    if (const auto ask = call<Result (*)(int* value, int which, int device)>("cuDeviceGetAttribute"))
      ask(&value, which, handle_of(ordinal));
    return value;
  }
  std::string words_for(Result result) const {
    const char* words = nullptr;
    if (const auto ask = call<Result (*)(Result result, const char** words)>("cuGetErrorString")) ask(result, &words);
    return words ? words : "error " + std::to_string(result);
  }

  void* library_;
  CudaDriver says_;
  int count_ = 0;
};

// Why this process may not use the device: asked by using it.
std::string refusal_of(torch::Device device) {
  try {
    torch::zeros({1}, torch::TensorOptions().device(device));
    return "";
  } catch (const c10::Error& error) {
    const std::string words = error.what_without_backtrace();
    return words.substr(0, words.find('\n'));
  }
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
  const Driver driver;
  const CudaBuild build = this_cuda_build();
  check_driver(driver.says(), build);
  DeviceQuestion question =
      ask_for_device(base.backend(), has_cuda_devices() ? driver.uuids() : std::vector<std::string>());
  question.nccl_version = nccl_version();
  const torch::Device device(torch::kCUDA, static_cast<torch::DeviceIndex>(choose_device_index(question)));
  CudaDevice chosen = driver.device(device.index());
  check_device(chosen, build);
  chosen.refused = refusal_of(device);
  check_device(chosen, build);
  run_on_device(nccl_options(base, device), base, body);
}

NcclOptions nccl_options(World& base, torch::Device device) {
  NcclOptions options;
  options.device = device;
  options.waits = {base.config().comm.timeout_seconds, base.config().comm.lost_after_seconds};
  options.registers_memory = base.config().comm.registered_buffers;
  options.sums_by_rank = base.config().comm.sums_by_rank;
  options.describe_rank = [&base](int rank) { return base.mesh().describe_rank(rank); };
  // Stages send along pp; other groups' communicators would cost device memory for nothing.
  options.carries_messages = neighbours_send;
  return options;
}

void run_on_device(NcclOptions options, World& base, const std::function<void(World&)>& body) {
  const c10::DeviceGuard on_device(options.device);
  // A device's default stream can't be recorded.
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
