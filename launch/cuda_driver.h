// The CUDA driver, loaded when it is asked: nothing is linked to it.
#pragma once

#include <string>
#include <vector>

#include "gantry/comm/device_fitness.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

class CudaDriverCalls {
 public:
  // Loaded already where there are devices: LibTorch's CUDA parts stand on it.
  CudaDriverCalls();

  bool sees_devices() const { return count_ > 0; }
  // Which CUDA devices this process sees, by 16 bytes each in the order of their indices: CUDA_VISIBLE_DEVICES may say
  // the same ones in different words, or in another order. ResourceError for a device that does not say.
  std::vector<std::string> uuids() const;

  // For the backend of that name, as device_fitness.h has it: ResourceError for a driver that does not do, and for a
  // device, which is used to see whether this process may.
  void require(const std::string& backend) const;
  void require_device(const std::string& backend, torch::Device device) const;

 private:
  CudaDevice device(int ordinal) const;
  template <class Call>
  Call call(const char* name) const;
  int handle_of(int ordinal) const;
  int attribute(int which, int ordinal) const;
  std::string words_for(int result) const;

  void* library_;
  CudaDriver says_;
  int count_ = 0;
};

}  // namespace gantry
