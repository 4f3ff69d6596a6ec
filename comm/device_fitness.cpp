#include "gantry/comm/device_fitness.h"

#include <algorithm>
#include <fmt/format.h>

#include <ATen/detail/CUDAHooksInterface.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

// For example "80,90" in a build with CUDA kernels.
#ifndef GANTRY_CUDA_ARCHITECTURES
#define GANTRY_CUDA_ARCHITECTURES
#endif

namespace gantry {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }
std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

}  // namespace

void check_driver(const std::string& backend, const CudaDriver& driver, const CudaBuild& build) {
  if (build.cuda == 0 || driver.version == 0) return;
  // Within a major version, older drivers work.
  if (driver.version / 1000 < build.cuda / 1000)
    throw ResourceError({"comm.backend",
                         fmt::format("{} cannot be used, because the NVIDIA driver only supports CUDA {}", backend,
                                     version_text(driver.version)),
                         fmt::format("a driver for CUDA {} or newer, like this build's LibTorch", build.cuda / 1000),
                         "update the NVIDIA driver, or build with a LibTorch for the driver's CUDA"});
  if (!driver.error.empty())
    throw ResourceError(
        {"comm.backend", backend + " cannot be used, because the NVIDIA driver reports: " + driver.error,
         "a working driver", "check whether nvidia-smi runs and whether this process may open /dev/nvidia*"});
}

void check_device(const std::string& backend, const CudaDevice& device, const CudaBuild& build) {
  const std::string where = fmt::format("CUDA device {} ({})", device.ordinal, device.name);
  if (!build.architectures.empty()) {
    const int oldest = *std::min_element(build.architectures.begin(), build.architectures.end());
    if (device.capability < oldest)
      throw ResourceError(
          {"comm.backend",
           fmt::format("{} cannot be used, because {} has compute capability {}", backend, where,
                       capability_text(device.capability)),
           fmt::format("{} or newer, like this build's kernels", capability_text(oldest)),
           fmt::format("build with -DGANTRY_CUDA_ARCHITECTURES={}, or use comm.backend local", device.capability)});
  }
  if (device.refused.empty()) return;
  throw ResourceError(
      {"comm.backend", fmt::format("{} cannot be used, because {} is unavailable: {}", backend, where, device.refused),
       "a device that this process may use",
       device.exclusive
           ? "end the process that uses it (nvidia-smi lists them), or allow several processes: nvidia-smi -c DEFAULT"
           : "check the device with nvidia-smi, or select others with CUDA_VISIBLE_DEVICES"});
}

CudaBuild this_cuda_build() {
  const auto& hooks = at::detail::getCUDAHooks();
  CudaBuild build{.architectures = {GANTRY_CUDA_ARCHITECTURES}};
  if (hooks.hasCUDART()) build.cuda = static_cast<int>(hooks.versionCUDART());
  return build;
}

}  // namespace gantry
