// Checks whether a rank can train on a CUDA device. The properties of the driver, the device and this build
// are passed as values.
#pragma once

#include <string>
#include <vector>

namespace gantry {

// The CUDA version and the kernel architectures of this build.
struct CudaBuild {
  int cuda = 0;                    // LibTorch's CUDA version: 13000 is 13.0; 0: LibTorch is a CPU build
  std::vector<int> architectures;  // targets of the kernels: 90 is 9.0; empty: no kernels
};

// The state of the driver. `version` is encoded as in CudaBuild, 0 without a driver.
struct CudaDriver {
  int version = 0;
  std::string error;  // why the driver cannot be used; empty: it can
};

struct CudaDevice {
  int ordinal = 0;
  std::string name;        // "NVIDIA H200"
  int capability = 0;      // compute capability: 90 is 9.0
  bool exclusive = false;  // its compute mode allows only one process
  std::string refused;     // CUDA's error if this process may not use it; empty: it may
};

// Throws ResourceError if there is a driver, but it is older than LibTorch's CUDA or has failed. `backend` is
// named in the error.
void check_driver(const std::string& backend, const CudaDriver& driver, const CudaBuild& build);
// Throws ResourceError if the device is older than the architectures of the kernels, or if this process may
// not use it.
void check_device(const std::string& backend, const CudaDevice& device, const CudaBuild& build);

CudaBuild this_cuda_build();

}  // namespace gantry
