#include "gantry/comm/nccl/cuda_uuids.h"

#include <array>
#include <dlfcn.h>
#include <string>

#include "gantry/core/error.h"

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

}  // namespace

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

}  // namespace gantry
