#include "gantry/tensors/released_memory.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/strides.h>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/torch_versions.h"

namespace gantry {

ReleasedMemory::ReleasedMemory(std::int64_t elements, torch::ScalarType type, torch::Device device, std::string error)
    : full_(torch::empty({elements}, torch::TensorOptions().dtype(type).device(device))),
      bytes_(elements * static_cast<std::int64_t>(full_.element_size())),
      error_(std::move(error)),
      there_(true) {
  release();
}

torch::Tensor ReleasedMemory::over(std::int64_t offset, at::IntArrayRef sizes) const {
  const torch::NoGradGuard no_grad;
  auto* storage = full_.storage().unsafeGetStorageImpl();
  if (!there_) {  // set_() checks both
    clear_access_error(*storage);
    storage->set_nbytes(bytes_);
  }
  torch::Tensor part = torch::empty({0}, full_.options());
  part.set_(full_.storage(), offset, sizes, c10::contiguous_strides(sizes));
  if (!there_) refuse_use();
  return part;
}

void ReleasedMemory::refuse_use() const {
  auto* storage = full_.storage().unsafeGetStorageImpl();
  storage->set_nbytes(0);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(error_);
}

void ReleasedMemory::bring() {
  if (there_) return;
  auto* storage = full_.storage().unsafeGetStorageImpl();
  const c10::DeviceGuard guard(storage->device());
  clear_access_error(*storage);
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes_));
  storage->set_nbytes(bytes_);
  there_ = true;
}

void ReleasedMemory::release() {
  if (!there_) return;
  auto* storage = full_.storage().unsafeGetStorageImpl();
  const c10::DeviceGuard guard(storage->device());
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, storage->device()));
  refuse_use();
  there_ = false;
}

}  // namespace gantry
