#include "gantry/tensors/moved_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/torch_versions.h"

namespace gantry {
namespace {

constexpr std::size_t kAlignment = 64;  // bytes; each part in a buffer is aligned to it

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

OffloadBufferPool::OffloadBufferPool(torch::Device device) : device_(device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  stream_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

// Returns the smallest free buffer that is large enough, or a new one.
OffloadBufferPool::OffloadBuffer OffloadBufferPool::take(std::int64_t bytes) {
  auto best = free_.end();
  for (auto each = free_.begin(); each != free_.end(); ++each)
    if (each->size >= bytes && (best == free_.end() || each->size < best->size)) best = each;
  if (best != free_.end()) {
    OffloadBuffer room = std::move(*best);
    free_.erase(best);
    return room;
  }
  OffloadBuffer room{.file = nullptr, .pinned = {}, .size = bytes};
  if (device_.is_cpu())
    room.file = std::make_unique<ScratchFile>(bytes);
  else
    room.pinned = torch::empty({bytes}, torch::TensorOptions().dtype(torch::kUInt8).pinned_memory(true));
  return room;
}

void OffloadBufferPool::give_back(OffloadBuffer room) { free_.push_back(std::move(room)); }

MovedMemory::MovedMemory(OffloadBufferPool& rooms, std::vector<c10::Storage> storages) : rooms_(rooms) {
  for (auto& storage : storages) {
    const std::size_t bytes = storage.nbytes(), offset = static_cast<std::size_t>(bytes_);
    bytes_ += static_cast<std::int64_t>(aligned(bytes));
    parts_.push_back({std::move(storage), bytes, offset});
  }
}

MovedMemory::~MovedMemory() {
  if (copying_.valid()) copying_.wait();
  if (room_.size > 0) rooms_.give_back(std::move(room_));
}

void MovedMemory::start_out() {
  if (parts_.empty() || is_out_) return;
  room_ = rooms_.take(bytes_);
  is_out_ = true;
  if (rooms_.device().is_cpu())
    copying_ = std::async(std::launch::async, [this, mine = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard as_caller(mine);  // for the memory meter of the caller
      copy_out_of_cpu();
    });
  else
    copy_out_of_device();
}

void MovedMemory::start_in() {
  if (!is_out_ || is_coming_) return;
  is_coming_ = true;
  if (!rooms_.device().is_cpu()) return copy_into_device();
  copying_ = std::async(std::launch::async, [this, mine = at::ThreadLocalState(),
                                             out = std::make_shared<std::future<void>>(std::move(copying_))] {
    const at::ThreadLocalStateGuard as_caller(mine);
    if (out->valid()) out->get();
    copy_into_cpu();
  });
}

void MovedMemory::wait() {
  start_in();
  if (!is_out_) return;
  if (copying_.valid()) copying_.get();
  if (arrived_) {
    const c10::impl::VirtualGuardImpl guard(rooms_.device().type());
    arrived_->block(guard.getStream(rooms_.device()));
  }
  is_out_ = is_coming_ = false;
  rooms_.give_back(std::exchange(room_, {}));
}

void MovedMemory::copy_out_of_cpu() {
  std::byte* to = room_.file->bytes().data();
  for (const Part& part : parts_) {
    std::memcpy(to + part.offset, part.storage.data(), part.bytes);
    release(part);
  }
  room_.file->let_go();
}

void MovedMemory::copy_into_cpu() {
  const std::byte* from = room_.file->bytes().data();
  for (const Part& part : parts_) {
    allocate(part);
    std::memcpy(part.storage.mutable_data(), from + part.offset, part.bytes);
  }
  room_.file->let_go();
}

void MovedMemory::copy_out_of_device() {
  const torch::NoGradGuard no_grad;
  const c10::DeviceGuard on_its_device(rooms_.device());
  const c10::impl::VirtualGuardImpl guard(rooms_.device().type());
  const c10::Stream& stream = *rooms_.stream();
  c10::Event computed(rooms_.device().type());
  computed.record(guard.getStream(rooms_.device()));
  computed.block(stream);
  {
    const c10::StreamGuard on_stream(stream);
    for (const Part& part : parts_) in_room(part).copy_(on_device(part), /*non_blocking=*/true);
  }
  for (const Part& part : parts_) {
    guard.recordDataPtrOnStream(part.storage.data_ptr(), stream);
    release(part);
  }
}

void MovedMemory::copy_into_device() {
  const torch::NoGradGuard no_grad;
  const c10::DeviceGuard on_its_device(rooms_.device());
  const c10::impl::VirtualGuardImpl guard(rooms_.device().type());
  const c10::Stream& stream = *rooms_.stream();
  for (const Part& part : parts_) allocate(part);
  c10::Event allocated(rooms_.device().type());  // earlier users of the memory may still be running
  allocated.record(guard.getStream(rooms_.device()));
  allocated.block(stream);
  const c10::StreamGuard on_stream(stream);
  for (const Part& part : parts_) {
    on_device(part).copy_(in_room(part), /*non_blocking=*/true);
    guard.recordDataPtrOnStream(part.storage.data_ptr(), stream);
  }
  arrived_.emplace(rooms_.device().type());
  arrived_->record(stream);
}

torch::Tensor MovedMemory::on_device(const Part& part) const {
  torch::Tensor bytes = torch::empty({0}, torch::TensorOptions().dtype(torch::kUInt8).device(rooms_.device()));
  return bytes.set_(part.storage, 0, {static_cast<std::int64_t>(part.bytes)}, {1});
}

torch::Tensor MovedMemory::in_room(const Part& part) const {
  return room_.pinned.narrow(0, static_cast<std::int64_t>(part.offset), static_cast<std::int64_t>(part.bytes));
}

void MovedMemory::release(const Part& part) const {
  auto* storage = part.storage.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, storage->device()));
  storage->set_nbytes(0);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "a tensor is used while its memory is offloaded to the host (train.offload)");
}

void MovedMemory::allocate(const Part& part) const {
  auto* storage = part.storage.unsafeGetStorageImpl();
  clear_access_error(*storage);
  storage->set_data_ptr_noswap(storage->allocator()->allocate(part.bytes));
  storage->set_nbytes(part.bytes);
}

}  // namespace gantry
