// The CUDA driver, loaded at run time: no library is linked for it.
#pragma once

#include <string>
#include <vector>

#include "gantry/comm/device_fitness.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

class CudaDriverCalls {
 public:
  // Loads the driver. LibTorch's CUDA libraries have already loaded it if there are devices.
  CudaDriverCalls();

  bool sees_devices() const { return count_ > 0; }
  // Returns the UUIDs (16 bytes each) of the CUDA devices that this process sees, in the order of their
  // indices. Unlike CUDA_VISIBLE_DEVICES, which can list the same devices in different forms or orders, they
  // identify a device. Throws ResourceError for a device without a UUID.
  std::vector<std::string> uuids() const;

  // Checks for the named backend, see device_fitness.h. require() throws ResourceError if the driver is
  // unsuitable, require_device() if the device is. The latter allocates memory on the device, to find out
  // whether this process may use it.
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
