#include <algorithm>
#include <chrono>
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

std::vector<char> reduce(const Rendezvous& meeting, std::size_t count) {
  const Operation& first = *meeting.members[0];
  std::vector<const void*> inputs;
  for (const Operation* one : meeting.members) inputs.push_back(kernel_view(one->in));
  std::vector<char> sum(count * c10::elementSize(scalar_of(first.type)));
  const ReduceOp op = first.op == ncclSum ? ReduceOp::kSum : first.op == ncclMax ? ReduceOp::kMax : ReduceOp::kMin;
  reduce_span(sum.data(), inputs.data(), static_cast<int>(inputs.size()), static_cast<std::int64_t>(count),
              scalar_of(first.type), op);
  return sum;
}

void perform(const Rendezvous& meeting) {
  const Operation& first = *meeting.members[0];
  const std::size_t bytes = bytes_of(first), size = meeting.members.size();
  const auto give = [&](const Operation* to, const char* from) { std::memcpy(kernel_view(to->out), from, bytes); };
  if (first.kind == "ncclAllReduce") {
    const auto sum = reduce(meeting, first.count);
    for (const Operation* one : meeting.members) give(one, sum.data());
  } else if (first.kind == "ncclReduce") {
    const auto sum = reduce(meeting, first.count);
    give(meeting.members[first.peer], sum.data());
  } else if (first.kind == "ncclReduceScatter") {
    const auto sum = reduce(meeting, first.count * size);
    for (std::size_t i = 0; i < size; ++i) give(meeting.members[i], sum.data() + i * bytes);
  } else if (first.kind == "ncclBroadcast") {
    const auto* from = static_cast<const char*>(kernel_view(meeting.members[first.peer]->in));
    const std::vector<char> value(from, from + bytes);
    for (const Operation* one : meeting.members) give(one, value.data());
  } else {  // ncclAllGather
    std::vector<char> full(size * bytes);
    for (std::size_t i = 0; i < size; ++i)
      std::memcpy(full.data() + i * bytes, kernel_view(meeting.members[i]->in), bytes);
    for (const Operation* one : meeting.members) std::memcpy(kernel_view(one->out), full.data(), full.size());
  }
}

}  // namespace

std::size_t bytes_of(const Operation& operation) {
  return operation.count * c10::elementSize(scalar_of(operation.type));
}

template <class Ready>
bool FakeRun::until(Lock& lock, Ready ready) {
  member_->shared->changed.wait(lock, [&] { return member_->aborted || ready(); });
  return !member_->aborted;
}

void FakeRun::operator()() {
  std::unique_lock lock(member_->shared->mutex);
  run(lock);
  --member_->under_way;
  member_->shared->changed.notify_all();
}

void FakeRun::run(Lock& lock) {
  for (const Operation& operation : operations_)
    if (!begin(lock, operation)) return;
  std::vector<std::shared_ptr<Parcel>> sent;
  for (const Operation& operation : operations_)
    if (operation.kind == "ncclSend") sent.push_back(post(operation));
  for (const Operation& operation : operations_)
    if (!operation.point_to_point() ? !meet(lock, operation)
                                    : operation.kind == "ncclRecv" && !receive(lock, operation))
      break;
  if (!until(lock,
             [&] { return std::all_of(sent.begin(), sent.end(), [](const auto& parcel) { return parcel->taken; }); }))
    for (auto& [way, box] : member_->shared->parcels)
      if (way.first == member_->rank) box.clear();
}

bool FakeRun::begin(Lock& lock, const Operation& operation) {
  const FakeCall call{operation.kind, member_->shared->size, member_->rank, member_->operations++};
  lock.unlock();
  const FakeFault fault = fault_for(call);
  if (fault == FakeFault::kDelay) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  lock.lock();
  if (fault == FakeFault::kError) member_->state = ncclRemoteError;
  if (fault == FakeFault::kError || fault == FakeFault::kHang) return until(lock, [] { return false; });
  return !member_->aborted;
}

std::shared_ptr<Parcel> FakeRun::post(const Operation& operation) {
  auto parcel = std::make_shared<Parcel>(Parcel{operation.in, bytes_of(operation)});
  member_->shared->parcels[{member_->rank, operation.peer}].push_back(parcel);
  member_->shared->changed.notify_all();
  return parcel;
}

bool FakeRun::receive(Lock& lock, const Operation& operation) {
  auto& box = member_->shared->parcels[{operation.peer, member_->rank}];
  if (!until(lock, [&] { return !box.empty(); })) return false;
  const auto parcel = box.front();
  if (parcel->bytes != bytes_of(operation)) {
    member_->state = ncclInvalidUsage;  // NCCL itself would write over something
    return until(lock, [] { return false; });
  }
  std::memcpy(kernel_view(operation.out), kernel_view(parcel->data), parcel->bytes);
  parcel->taken = true;
  box.pop_front();
  member_->shared->changed.notify_all();
  return true;
}

bool FakeRun::meet(Lock& lock, const Operation& operation) {
  Shared& shared = *member_->shared;
  Rendezvous& meeting = shared.meetings[member_->collectives++];
  meeting.members.resize(shared.size);
  meeting.members[member_->rank] = &operation;
  if (++meeting.here == shared.size) {
    for (const Operation* one : meeting.members)
      if (one->signature() != operation.signature())
        meeting.broken = true;
      else if (one->registered != operation.registered)
        count_misuse();
    if (!meeting.broken) perform(meeting);
    meeting.done = !meeting.broken;
    shared.changed.notify_all();
  }
  const bool done = until(lock, [&] { return meeting.done; }) || meeting.done;
  if (!done) meeting.broken = true;
  return done;
}

}  // namespace gantry::testing
