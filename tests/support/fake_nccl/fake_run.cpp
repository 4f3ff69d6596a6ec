#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device_memory.h"
#include "fake_communicator.h"
#include "gantry/comm/reduce_kernels.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

torch::ScalarType scalar_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return torch::kFloat32;
    case ncclFloat64:
      return torch::kFloat64;
    case ncclBfloat16:
      return torch::kBFloat16;
    case ncclFloat16:
      return torch::kFloat16;
    case ncclInt64:
      return torch::kInt64;
    case ncclInt32:
      return torch::kInt32;
    default:
      return torch::kUInt8;
  }
}

void check_room_for(std::size_t bytes) {
  if (bytes <= kSlotBytes) return;
  std::fprintf(stderr, "fake nccl: %zu bytes are more than a member's slot holds (kSlotBytes)\n", bytes);
  std::abort();
}

// The number of bytes that a member contributes to a collective.
std::size_t brought_bytes(const Operation& operation, int size) {
  return operation.in ? bytes_of(operation) * (operation.call == Call::kReduceScatter ? size : 1) : 0;
}

}  // namespace

const char* name_of(Call call) {
  constexpr const char* kNames[] = {"ncclSend",      "ncclRecv",      "ncclAllReduce",    "ncclReduce",
                                    "ncclBroadcast", "ncclAllGather", "ncclReduceScatter"};
  return kNames[static_cast<int>(call)];
}

std::size_t bytes_of(const Operation& operation) {
  return operation.count * c10::elementSize(scalar_of(operation.type));
}

template <class Ready>
bool FakeRun::until(Lock& lock, Ready ready) {
  while (!member_->aborted && !ready()) lock.wait();
  return !member_->aborted;
}

void FakeRun::operator()() {
  Lock lock(*member_->room);
  run(lock);
  --member_->under_way;
  member_->room->tell_change();
}

void FakeRun::run(Lock& lock) {
  for (const Operation& operation : operations_)
    if (!begin(lock, operation)) return;
  for (const Operation& operation : operations_)
    if (!operation.point_to_point() && !meet(lock, operation)) return;
  exchange(lock);
}

bool FakeRun::begin(Lock& lock, const Operation& operation) {
  const FakeCall call{name_of(operation.call), member_->size, member_->rank, member_->operations++};
  lock.release();
  const FakeFault fault = fault_for(call);
  if (fault == FakeFault::kDelay) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  lock.acquire();
  if (fault == FakeFault::kError) member_->state = ncclRemoteError;
  if (fault == FakeFault::kError || fault == FakeFault::kHang) return until(lock, [] { return false; });
  return !member_->aborted;
}

// Exchanges the messages of the group in the order in which the peers are ready. A send is complete when its
// receiver has taken the message.
bool FakeRun::exchange(Lock& lock) {
  RoomState& state = member_->room->state();
  const auto taken = [&] {
    return std::none_of(std::begin(state.parcels[member_->rank]), std::end(state.parcels[member_->rank]),
                        [](const Parcel& parcel) { return parcel.posted; });
  };
  const bool done = until(lock, [&] { return move_messages() && taken(); });
  if (!done)
    for (Parcel& parcel : state.parcels[member_->rank]) parcel.posted = false;
  return done;
}

// Posts and takes the messages that are ready. Returns true if none is left.
bool FakeRun::move_messages() {
  const RoomState& state = member_->room->state();
  const bool slot_is_free = state.readers[member_->rank] == 0;  // all members have read the last contribution
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const Operation& operation = operations_[i];
    if (moved_[i] || !operation.point_to_point()) continue;
    if (operation.call == Call::kRecv) {
      moved_[i] = take(operation);
    } else if (slot_is_free && !state.parcels[member_->rank][operation.peer].posted) {
      post(operation);
      moved_[i] = true;
    }
  }
  for (std::size_t i = 0; i < operations_.size(); ++i)
    if (operations_[i].point_to_point() && !moved_[i]) return false;
  return true;
}

void FakeRun::post(const Operation& operation) {
  const std::size_t bytes = bytes_of(operation);
  check_room_for(slot_end_ + bytes);
  std::memcpy(member_->room->slot(member_->rank) + slot_end_, kernel_view(operation.in), bytes);
  member_->room->state().parcels[member_->rank][operation.peer] = {true, slot_end_, bytes};
  slot_end_ += bytes;
  member_->room->tell_change();
}

bool FakeRun::take(const Operation& operation) {
  Parcel& parcel = member_->room->state().parcels[operation.peer][member_->rank];
  if (!parcel.posted) return false;
  if (parcel.bytes != bytes_of(operation)) {
    member_->state = ncclInvalidUsage;  // NCCL would overwrite other memory
    return false;
  }
  std::memcpy(kernel_view(operation.out), member_->room->slot(operation.peer) + parcel.offset, parcel.bytes);
  parcel.posted = false;
  member_->room->tell_change();
  return true;
}

// Runs a collective: waits for the contributions of all members and takes this member's result.
bool FakeRun::meet(Lock& lock, const Operation& operation) {
  RoomState& state = member_->room->state();
  if (!bring(lock, operation)) return false;
  const std::uint64_t number = state.brought[member_->rank];
  const auto all_here = [&] {
    return std::all_of(state.brought, state.brought + member_->size,
                       [&](std::uint64_t brought) { return brought >= number; });
  };
  if (!until(lock, all_here)) return false;
  for (int other = 0; other < member_->size; ++other) {
    if (state.signatures[other] != operation.signature()) return until(lock, [] { return false; });
    if (state.registered[other] != operation.registered) count_misuse();
  }
  take_results(operation);
  for (int other = 0; other < member_->size; ++other) --state.readers[other];
  member_->room->tell_change();
  return true;
}

bool FakeRun::bring(Lock& lock, const Operation& operation) {
  RoomState& state = member_->room->state();
  const int rank = member_->rank;
  if (!until(lock, [&] { return state.readers[rank] == 0; })) return false;
  const std::size_t bytes = brought_bytes(operation, member_->size);
  check_room_for(bytes);
  if (bytes > 0) std::memcpy(member_->room->slot(rank), kernel_view(operation.in), bytes);
  state.signatures[rank] = operation.signature();
  state.registered[rank] = operation.registered;
  state.readers[rank] = member_->size;
  ++state.brought[rank];
  member_->room->tell_change();
  return true;
}

void FakeRun::take_results(const Operation& operation) {
  SharedRoom& room = *member_->room;
  const std::size_t bytes = bytes_of(operation);
  if (operation.call == Call::kReduce && operation.peer != member_->rank) return;
  char* const out = static_cast<char*>(kernel_view(operation.out));
  if (operation.call == Call::kBroadcast) {
    std::memcpy(out, room.slot(operation.peer), bytes);
  } else if (operation.call == Call::kAllGather) {
    for (int other = 0; other < member_->size; ++other) std::memcpy(out + other * bytes, room.slot(other), bytes);
  } else {
    const std::size_t begin = operation.call == Call::kReduceScatter ? member_->rank * bytes : 0;
    std::vector<const void*> inputs;
    for (int other = 0; other < member_->size; ++other) inputs.push_back(room.slot(other) + begin);
    const ReduceOp op = operation.op == ncclSum   ? ReduceOp::kSum
                        : operation.op == ncclMax ? ReduceOp::kMax
                                                  : ReduceOp::kMin;
    reduce_span(out, inputs.data(), static_cast<int>(inputs.size()), static_cast<std::int64_t>(operation.count),
                scalar_of(operation.type), op);
  }
}

}  // namespace gantry::testing
