#include "cpu_view.h"

#include <cstring>

#include <ATen/EmptyTensor.h>

#include "device_allocator.h"
#include "device_work.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

// Device tensors have a second, lower backend bit. LibTorch's set_data between the CPU and a device
// (Module::to) requires the bit of a "dense" backend, which PrivateUse1 is not. Operators are dispatched by
// the highest bit.
const c10::DispatchKeySet kKeys =
    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) |
    c10::DispatchKeySet(c10::DispatchKeySet::RAW,
                        std::uint64_t{1} << (static_cast<std::uint8_t>(c10::BackendComponent::MTIABit) - 1));

const void* first_byte(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.storage().data()) + tensor.storage_offset() * tensor.itemsize();
}

void carry_bits(const at::Tensor& from, const at::Tensor& to) {
  to._set_conj(from.is_conj());
  to._set_neg(from.is_neg());
}

}  // namespace

bool on_pretend_device(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kPretendType; }

Access access_of(const at::Tensor& tensor, bool writes) {
  const std::size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  return {bytes == 0 ? nullptr : first_byte(tensor), bytes, writes};
}

at::Tensor over_storage(const c10::Storage& storage, caffe2::TypeMeta type, at::IntArrayRef sizes,
                        at::IntArrayRef strides, std::int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), kKeys, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor new_device_tensor(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  const c10::DeviceGuard guard(device);
  const caffe2::TypeMeta meta = c10::scalarTypeToTypeMeta(type);
  const std::size_t bytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
  c10::Allocator& allocator = device_allocator();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, allocator.allocate(bytes), &allocator, /*resizable=*/true));
  return over_storage(storage, meta, sizes, strides, 0);
}

at::Tensor CpuView::of(const at::Tensor& tensor) {
  if (!on_pretend_device(tensor)) return tensor;
  for (const Pair& pair : tensors_)
    if (pair.device.is_same(tensor)) return pair.cpu;
  const c10::StorageImpl* full = tensor.storage().unsafeGetStorageImpl();
  auto found = storages_.find(full);
  if (found == storages_.end()) {
    c10::DataPtr memory(full->data() ? kernel_view(full->data()) : nullptr, c10::Device(c10::kCPU));
    found = storages_
                .emplace(full, c10::Storage(c10::make_intrusive<c10::StorageImpl>(
                                   c10::StorageImpl::use_byte_size_t(), full->nbytes(), std::move(memory),
                                   c10::GetAllocator(c10::kCPU), /*resizable=*/true)))
                .first;
  }
  auto cpu = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(found->second),
                                                      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  cpu.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_complex()) carry_bits(tensor, cpu);
  tensors_.push_back({tensor, cpu});
  return cpu;
}

at::Tensor CpuView::back(const at::Tensor& result, c10::Device device, const std::string& what) const {
  if (!result.defined()) return result;
  for (const Pair& pair : tensors_)
    if (pair.cpu.is_same(result)) return pair.device;
  for (const auto& [full, storage] : storages_)
    if (storage.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl()) {
      const c10::Storage original(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(const_cast<c10::StorageImpl*>(full)));
      at::Tensor view =
          over_storage(original, result.dtype(), result.sizes(), result.strides(), result.storage_offset());
      if (result.is_complex()) carry_bits(result, view);
      return view;
    }
  const at::Tensor dense = result.is_non_overlapping_and_dense() ? result : result.contiguous();
  at::Tensor made = new_device_tensor(device, dense.sizes(), dense.strides(), dense.scalar_type());
  const Access access = access_of(made, /*writes=*/true);
  PretendStream& stream = current_stream(device.index());
  race_checker(device.index()).launch(stream.number(), {access}, what);
  if (!stream.idle()) stream.wait();  // another thread may have just freed this memory
  if (access.bytes > 0) std::memcpy(kernel_view(access.begin), dense.const_data_ptr(), access.bytes);
  return made;
}

void CpuView::follow_resized() const {
  for (const auto& [device, cpu] : tensors_) {
    const auto& memory = cpu.storage();
    c10::StorageImpl& full = *device.storage().unsafeGetStorageImpl();
    const void* expected = full.data() ? kernel_view(full.data()) : nullptr;
    if (memory.data() != expected) {
      resize_storage(full, memory.nbytes());
      if (memory.nbytes() > 0) {
        // On the stream, because the allocator may still have to fill memory that another thread has just
        // freed.
        void* to = full.mutable_data();
        launch_kernel(device.device().index(), "resize", {{to, memory.nbytes(), true}},
                      [to, memory] { std::memcpy(kernel_view(to), memory.data(), memory.nbytes()); });
      }
    }
    if (device.sizes() != cpu.sizes() || device.strides() != cpu.strides())
      device.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
}

}  // namespace gantry::testing
