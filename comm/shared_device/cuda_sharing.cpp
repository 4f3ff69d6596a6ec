#include "gantry/comm/shared_device/cuda_sharing.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Types of cuda.h: addresses and results are numbers; contexts, events and streams are pointers; handles have
// 64 bytes.
using CudaResult = int;
constexpr CudaResult kCudaSuccess = 0;
using CudaAddress = unsigned long long;
using CudaPointer = void*;
struct CudaHandle {
  SharedHandle bytes;
};

class CudaIpcDriver {
 public:
  CudaIpcDriver() : library_(::dlopen("libcuda.so.1", RTLD_LAZY)) {
    if (!library_) refuse("the CUDA driver (libcuda.so.1) was not found");
    load(error_string, "cuGetErrorString");
    load(device_of, "cuDeviceGet");
    load(uuid_of, "cuDeviceGetUuid_v2");
    load(retain_context, "cuDevicePrimaryCtxRetain");
    load(set_context, "cuCtxSetCurrent");
    load(range_of, "cuMemGetAddressRange_v2");
    load(memory_handle, "cuIpcGetMemHandle");
    load(open_memory, "cuIpcOpenMemHandle_v2");
    load(close_memory, "cuIpcCloseMemHandle");
    load(create_event, "cuEventCreate");
    load(event_handle, "cuIpcGetEventHandle");
    load(open_event, "cuIpcOpenEventHandle");
    load(record_event, "cuEventRecord");
    load(wait_event, "cuStreamWaitEvent");
    load(destroy_event, "cuEventDestroy_v2");
  }

  void check(CudaResult result, const char* call,
             const char* remedy = "see docs/gpu.md for the requirements of ranks that share a device") const {
    if (result == kCudaSuccess) return;
    const char* words = nullptr;
    error_string(result, &words);
    throw ResourceError(
        {"ipc", fmt::format("{} failed: {}", call, words ? words : std::to_string(result)), "", remedy});
  }

  // Must precede calls that need a context, because a thread that has not called CUDA yet has none.
  void enter() const { check(set_context(context), "cuCtxSetCurrent"); }

  CudaPointer context = nullptr;  // the device's primary context, which LibTorch uses too
  CudaResult (*error_string)(CudaResult result, const char** words) = nullptr;
  CudaResult (*device_of)(int* device, int ordinal) = nullptr;
  CudaResult (*uuid_of)(std::array<unsigned char, 16>* uuid, int device) = nullptr;
  CudaResult (*retain_context)(CudaPointer* context, int device) = nullptr;
  CudaResult (*set_context)(CudaPointer context) = nullptr;
  CudaResult (*range_of)(CudaAddress* begin, std::size_t* bytes, CudaAddress within) = nullptr;
  CudaResult (*memory_handle)(CudaHandle* handle, CudaAddress begin) = nullptr;
  CudaResult (*open_memory)(CudaAddress* begin, CudaHandle handle, unsigned flags) = nullptr;
  CudaResult (*close_memory)(CudaAddress begin) = nullptr;
  CudaResult (*create_event)(CudaPointer* event, unsigned flags) = nullptr;
  CudaResult (*event_handle)(CudaHandle* handle, CudaPointer event) = nullptr;
  CudaResult (*open_event)(CudaPointer* event, CudaHandle handle) = nullptr;
  CudaResult (*record_event)(CudaPointer event, CudaPointer stream) = nullptr;
  CudaResult (*wait_event)(CudaPointer stream, CudaPointer event, unsigned flags) = nullptr;
  CudaResult (*destroy_event)(CudaPointer event) = nullptr;

 private:
  [[noreturn]] static void refuse(const std::string& what) {
    throw ResourceError({"comm.backend", "ipc cannot be used, because " + what, "a CUDA device that ranks can share",
                         "use mpi, which keeps tensors on the CPU, or update the NVIDIA driver"});
  }
  template <class Call>
  void load(Call& call, const char* name) {
    call = reinterpret_cast<Call>(::dlsym(library_, name));
    if (!call) refuse(fmt::format("the CUDA driver has no {}", name));
  }

  void* library_;
};

class CudaSharedEvent final : public SharedEvent {
 public:
  static constexpr unsigned kDisableTiming = 2, kInterprocess = 4;

  explicit CudaSharedEvent(const CudaIpcDriver& driver) : driver_(driver) {
    driver_.enter();
    driver_.check(driver_.create_event(&event_, kDisableTiming | kInterprocess), "cuEventCreate");
    driver_.check(driver_.event_handle(&handle_, event_), "cuIpcGetEventHandle");
  }
  CudaSharedEvent(const CudaIpcDriver& driver, const SharedHandle& handle) : driver_(driver), handle_{handle} {
    driver_.enter();
    driver_.check(driver_.open_event(&event_, handle_), "cuIpcOpenEventHandle");
  }
  ~CudaSharedEvent() override {
    driver_.set_context(driver_.context);
    driver_.destroy_event(event_);
  }

  SharedHandle handle() const override { return handle_.bytes; }
  void record(const c10::Stream& stream) override {
    driver_.enter();
    driver_.check(driver_.record_event(event_, native(stream)), "cuEventRecord");
  }
  void block(const c10::Stream& stream) const override {
    driver_.enter();
    driver_.check(driver_.wait_event(native(stream), event_, 0), "cuStreamWaitEvent");
  }

 private:
  static CudaPointer native(const c10::Stream& stream) {
    return c10::impl::VirtualGuardImpl(stream.device_type()).getStreamNativeHandle(stream);
  }

  const CudaIpcDriver& driver_;
  CudaPointer event_ = nullptr;
  CudaHandle handle_ = {};
};

class CudaSharing final : public DeviceSharing {
 public:
  CudaSharing() {
    int handle = 0;
    driver_.check(driver_.device_of(&handle, device_.index()), "cuDeviceGet");
    std::array<unsigned char, 16> uuid{};
    driver_.check(driver_.uuid_of(&uuid, handle), "cuDeviceGetUuid");
    uuid_ = "GPU-";
    for (const unsigned char byte : uuid) uuid_ += fmt::format("{:02x}", byte);
    driver_.check(driver_.retain_context(&driver_.context, handle), "cuDevicePrimaryCtxRetain");
  }

  torch::Device device() const override { return device_; }
  std::string uuid() const override { return uuid_; }

  SharedPlace find_place(const void* memory) override {
    driver_.enter();
    const auto address = reinterpret_cast<CudaAddress>(memory);
    CudaAddress begin = 0;
    std::size_t bytes = 0;
    driver_.check(driver_.range_of(&begin, &bytes, address), "cuMemGetAddressRange");
    CudaHandle handle = {};
    driver_.check(driver_.memory_handle(&handle, begin), "cuIpcGetMemHandle",
                  "remove expandable_segments and backend:cudaMallocAsync from PYTORCH_CUDA_ALLOC_CONF, because only "
                  "memory from LibTorch's default allocator can be shared");
    return {handle.bytes, begin, static_cast<std::int64_t>(address - begin)};
  }
  char* open_memory(const SharedHandle& allocation) override {
    constexpr unsigned kLazyEnablePeerAccess = 1;
    driver_.enter();
    CudaAddress begin = 0;
    driver_.check(driver_.open_memory(&begin, {allocation}, kLazyEnablePeerAccess), "cuIpcOpenMemHandle");
    return reinterpret_cast<char*>(begin);
  }
  void close_memory(char* opened) override {
    driver_.enter();
    driver_.check(driver_.close_memory(reinterpret_cast<CudaAddress>(opened)), "cuIpcCloseMemHandle");
  }
  std::unique_ptr<SharedEvent> make_event() override { return std::make_unique<CudaSharedEvent>(driver_); }
  std::unique_ptr<SharedEvent> open_event(const SharedHandle& event) override {
    return std::make_unique<CudaSharedEvent>(driver_, event);
  }

 private:
  CudaIpcDriver driver_;
  const torch::Device device_{torch::kCUDA, 0};
  std::string uuid_;
};

}  // namespace

std::unique_ptr<DeviceSharing> share_cuda_device() {
  const bool there =
      c10::impl::hasDeviceGuardImpl(torch::kCUDA) && c10::impl::getDeviceGuardImpl(torch::kCUDA)->deviceCount() > 0;
  if (!there)
    throw ResourceError(
        {"comm.backend", "ipc cannot be used, because this process sees no CUDA device", "a device that all ranks see",
         "check CUDA_VISIBLE_DEVICES and whether Gantry was built with a LibTorch for CUDA, or use mpi"});
  return std::make_unique<CudaSharing>();
}

}  // namespace gantry
