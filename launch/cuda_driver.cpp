#include "gantry/launch/cuda_driver.h"

#include <array>
#include <dlfcn.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Types of cuda.h: results, devices and attributes are numbers, a UUID has 16 bytes.
using Result = int;
constexpr Result kSuccess = 0, kNoDevice = 100;

// Returns why this process may not use the device, found by an allocation on it; "" if it may.
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

CudaDriverCalls::CudaDriverCalls() : library_(::dlopen("libcuda.so.1", RTLD_LAZY)) {
  const auto start = call<Result (*)(unsigned flags)>("cuInit");
  const auto version_of = call<Result (*)(int* version)>("cuDriverGetVersion");
  if (!start || !version_of) return;
  version_of(&says_.version);
  if (const Result result = start(0); result != kSuccess && result != kNoDevice) says_.error = words_for(result);
  const auto count_of = call<Result (*)(int* count)>("cuDeviceGetCount");
  if (says_.error.empty() && count_of) count_of(&count_);
}

std::vector<std::string> CudaDriverCalls::uuids() const {
  using UuidCall = Result (*)(std::array<char, 16> * uuid, int device);
  auto uuid_of = call<UuidCall>("cuDeviceGetUuid_v2");  // also for a part of a device (MIG)
  if (!uuid_of) uuid_of = call<UuidCall>("cuDeviceGetUuid");
  std::vector<std::string> uuids;
  for (int ordinal = 0; ordinal < count_; ++ordinal) {
    std::array<char, 16> uuid{};
    if (!uuid_of || uuid_of(&uuid, handle_of(ordinal)) != kSuccess)
      throw ResourceError({"nccl", "CUDA device " + std::to_string(ordinal) + " has no UUID", "a UUID from the driver",
                           "check whether nvidia-smi lists the device"});
    uuids.emplace_back(uuid.data(), uuid.size());
  }
  return uuids;
}

void CudaDriverCalls::require(const std::string& backend) const { check_driver(backend, says_, this_cuda_build()); }

void CudaDriverCalls::require_device(const std::string& backend, torch::Device device) const {
  const CudaBuild build = this_cuda_build();
  CudaDevice chosen = this->device(device.index());
  check_device(backend, chosen, build);
  chosen.refused = refusal_of(device);
  check_device(backend, chosen, build);
}

// Returns the driver's data of the device, without `refused`.
CudaDevice CudaDriverCalls::device(int ordinal) const {
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

template <class Call>
Call CudaDriverCalls::call(const char* name) const {
  return library_ ? reinterpret_cast<Call>(::dlsym(library_, name)) : nullptr;
}

int CudaDriverCalls::handle_of(int ordinal) const {
  int device = ordinal;
  if (const auto handle = call<Result (*)(int* device, int ordinal)>("cuDeviceGet")) handle(&device, ordinal);
  return device;
}

int CudaDriverCalls::attribute(int which, int ordinal) const {
  int value = 0;
  if (const auto ask = call<Result (*)(int* value, int which, int device)>("cuDeviceGetAttribute"))
    ask(&value, which, handle_of(ordinal));
  return value;
}

std::string CudaDriverCalls::words_for(int result) const {
  const char* words = nullptr;
  if (const auto ask = call<Result (*)(Result result, const char** words)>("cuGetErrorString")) ask(result, &words);
  return words ? words : "error " + std::to_string(result);
}

}  // namespace gantry
