// Whether a rank can train on a CUDA device: by what the driver, the device and this build say, as values.
#pragma once

#include <string>
#include <vector>

namespace gantry {

// What this build was made for.
struct CudaBuild {
  int cuda = 0;                    // LibTorch's CUDA: 13000 is 13.0; 0: LibTorch is one for the CPU
  std::vector<int> architectures;  // of our kernels: 90 is compute capability 9.0; empty: there are none
};

// What the driver says; `version` as above, 0 without a driver.
struct CudaDriver {
  int version = 0;
  std::string error;  // why it can't be used; empty: it can
};

struct CudaDevice {
  int ordinal = 0;
  std::string name;        // "NVIDIA H200"
  int capability = 0;      // 90 is 9.0
  bool exclusive = false;  // its compute mode lets one process use it
  std::string refused;     // what CUDA says where this process may not use it; empty: it may
};

// `backend`: which one asks. ResourceError where a driver is there and does not do: it is older than LibTorch's CUDA,
// or says that it failed.
void check_driver(const std::string& backend, const CudaDriver& driver, const CudaBuild& build);
// ResourceError for a device that is older than what the kernels were built for, or that this process may not use.
void check_device(const std::string& backend, const CudaDevice& device, const CudaBuild& build);

CudaBuild this_cuda_build();

}  // namespace gantry
