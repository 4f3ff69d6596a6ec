#include "gantry/comm/nccl/nccl_memory.h"

#include <exception>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// One allocation; it is freed with the last tensor on it.
class NcclMemory {
 public:
  NcclMemory(const NcclDevice& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    const c10::DeviceGuard on_device(device_.device());
    if (const ncclResult_t code = ncclMemAlloc(&begin_, bytes); code != ncclSuccess)
      throw ResourceError({"comm.registered_buffers",
                           fmt::format("ncclMemAlloc of {} bytes on {} failed: {}", bytes, device_.device().str(),
                                       ncclGetErrorString(code)),
                           "memory from NCCL for the gradients", "set it to false, or use more ranks"});
  }
  ~NcclMemory() {
    const c10::DeviceGuard on_device(device_.device());
    try {
      device_.wait();
    } catch (const std::exception&) {
      // A broken device has no operations in flight.
    }
    if (const auto communicator = communicator_.lock()) communicator->deregister(handle_);
    ncclMemFree(begin_);
  }
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;

  void register_with(const std::shared_ptr<NcclCommunicator>& communicator) {
    handle_ = communicator->register_memory(begin_, bytes_);
    communicator_ = communicator;
  }
  void* begin() const { return begin_; }

 private:
  const NcclDevice device_;
  const std::size_t bytes_;
  void* begin_ = nullptr;
  std::weak_ptr<NcclCommunicator> communicator_;
  void* handle_ = nullptr;
};

}  // namespace

torch::Tensor new_registered_zeros(const std::shared_ptr<NcclCommunicator>& communicator, const NcclDevice& device,
                                   std::int64_t elements, const torch::TensorOptions& options) {
  const std::size_t item = c10::elementSize(c10::typeMetaToScalarType(options.dtype()));
  const auto memory = std::make_shared<NcclMemory>(device, static_cast<std::size_t>(elements) * item);
  memory->register_with(communicator);
  const torch::Tensor zeros = at::for_blob(memory->begin(), {elements})
                                  .deleter([memory](void*) {})
                                  .options(options.device(device.device()))
                                  .target_device(device.device())
                                  .make_tensor();
  return zeros.zero_();
}

}  // namespace gantry
