#include "fake_nccl.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>

#include "device_allocator.h"
#include "device_events.h"
#include "device_memory.h"
#include "device_stream.h"
#include "fake_communicator.h"

namespace gantry::testing {
namespace {

std::mutex control_mutex;  // guards the following
std::function<FakeFault(const FakeCall&)> faults;
bool joining = true;
FakeCounts counts;
std::map<void*, c10::DataPtr>& memory = *new std::map<void*, c10::DataPtr>;

template <class Change>
void count(Change change) {
  const std::lock_guard lock(control_mutex);
  change(counts);
}

struct Issued {
  std::shared_ptr<Member> member;
  PretendStream* stream;
  std::vector<Operation> operations;
};
thread_local int group_depth = 0;
thread_local std::vector<Issued> group;

}  // namespace

FakeFault fault_for(const FakeCall& call) {
  std::function<FakeFault(const FakeCall&)> ask;
  {
    const std::lock_guard lock(control_mutex);
    ++counts.calls;
    ask = faults;
  }
  return ask ? ask(call) : FakeFault::kNone;
}

void count_misuse() {
  count([](FakeCounts& all) { ++all.misuses; });
}

void set_fake_faults(std::function<FakeFault(const FakeCall&)> wanted) {
  const std::lock_guard lock(control_mutex);
  faults = std::move(wanted);
}

void set_fake_joining(bool joins) {
  const std::lock_guard lock(control_mutex);
  joining = joins;
}

FakeCounts fake_counts() {
  const std::lock_guard lock(control_mutex);
  return counts;
}

void reset_fake_counts() {
  const std::lock_guard lock(control_mutex);
  counts = {.live = counts.live, .memory = counts.memory, .registered = counts.registered};
}

}  // namespace gantry::testing

using namespace gantry::testing;

struct ncclComm {
  std::shared_ptr<Member> member;
};

namespace {

// Number of times that an accepted call is reported as in progress: by its own result, then by status
// queries.
constexpr int kQuestions = 2;

// The accesses of the operations, for the race checker, which ignores operands in host memory.
std::vector<Access> accesses_of(const Issued& issued) {
  std::vector<Access> accesses;
  for (const Operation& operation : issued.operations) {
    const std::size_t bytes = bytes_of(operation), size = static_cast<std::size_t>(issued.member->size);
    const bool gathers = operation.call == Call::kAllGather, scatters = operation.call == Call::kReduceScatter;
    if (operation.in) accesses.push_back({operation.in, scatters ? bytes * size : bytes, false});
    if (operation.out) accesses.push_back({operation.out, gathers ? bytes * size : bytes, true});
  }
  return accesses;
}

// Records in the race checker that the host has waited for the communicator's streams.
void note_flushed(const Member& member) {
  for (PretendStream* stream : member.streams)
    race_checker(stream->device()).host_waits(race_checker(stream->device()).now(stream->number()));
}

bool is_registered(const Member& member, const void* operand) {
  if (!operand) return true;
  const auto* address = static_cast<const char*>(operand);
  const auto after = member.registered.upper_bound(address);
  return after != member.registered.begin() && address < std::prev(after)->first + std::prev(after)->second;
}

void add(Operation operation, ncclComm_t communicator, cudaStream_t stream) {
  {
    const SharedRoom::Lock lock(*communicator->member->room);
    const Member& member = *communicator->member;
    operation.registered = is_registered(member, operation.in) && is_registered(member, operation.out);
    if (operation.registered) count([](FakeCounts& all) { ++all.registered_calls; });
    if (communicator->member->questions > 0 || group_depth == 0) count([](FakeCounts& all) { ++all.misuses; });
  }
  auto* queue = reinterpret_cast<PretendStream*>(stream);
  for (Issued& issued : group)
    if (issued.member == communicator->member && issued.stream == queue) {
      issued.operations.push_back(operation);
      return;
    }
  group.push_back({communicator->member, queue, {operation}});
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 23203;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "%s", SharedRoom::new_id().c_str());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "a fake remote error" : code == ncclInvalidUsage ? "a fake invalid usage" : "fake";
}

const char* ncclGetLastError(ncclComm_t) { return "the cable is cut"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  auto member = std::make_shared<Member>();
  member->room = SharedRoom::enter(id.internal);
  if (!member->room) return ncclSystemError;
  member->rank = rank;
  member->size = ranks;
  member->questions = kQuestions;
  member->room->join(rank, ranks);
  count([&](FakeCounts& all) {
    ++all.live;
    all.narrow += config->maxCTAs > 0;
    all.misuses += config->blocking != 0;
  });
  *communicator = new ncclComm{std::move(member)};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  bool may_join = true;
  count([&](FakeCounts&) { may_join = joining; });
  Member& member = *communicator->member;
  const SharedRoom::Lock lock(*member.room);
  const bool joined = may_join && member.room->state().joined == member.size;
  const bool busy =
      !joined || (member.finalized && member.under_way > 0) || (member.questions > 0 && --member.questions > 0);
  *state = member.state != ncclSuccess ? member.state : busy ? ncclInProgress : ncclSuccess;
  if (member.finalized && *state == ncclSuccess) note_flushed(member);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  Member& member = *communicator->member;
  const SharedRoom::Lock lock(*member.room);
  member.finalized = true;
  member.questions = kQuestions;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  Member& member = *communicator->member;
  {
    const SharedRoom::Lock lock(*member.room);
    const bool forbidden = !member.finalized || member.under_way > 0;
    count([&](FakeCounts& all) { all.misuses += forbidden; });
  }
  member.room->leave(member.rank);
  count([](FakeCounts& all) {
    ++all.destroyed;
    --all.live;
  });
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  Member& member = *communicator->member;
  {
    SharedRoom::Lock lock(*member.room);
    member.aborted = true;
    member.room->tell_change();
    while (member.under_way > 0) lock.wait();
    note_flushed(member);
    count([&](FakeCounts& all) { all.registered -= static_cast<int>(member.registered.size()); });
    member.registered.clear();
  }
  member.room->leave(member.rank);
  count([](FakeCounts& all) {
    ++all.aborted;
    --all.live;
  });
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** begin, size_t bytes) {
  c10::DataPtr taken = device_allocator().allocate(bytes);
  *begin = taken.get();
  count([&](FakeCounts& all) {
    ++all.memory;
    memory[*begin] = std::move(taken);
  });
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* begin) {
  c10::DataPtr freed;
  count([&](FakeCounts& all) {
    const auto found = memory.find(begin);
    all.misuses += found == memory.end();
    if (found == memory.end()) return;
    freed = std::move(found->second);
    memory.erase(found);
    --all.memory;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t communicator, void* begin, size_t bytes, void** handle) {
  Member& member = *communicator->member;
  const SharedRoom::Lock lock(*member.room);
  member.registered[static_cast<const char*>(begin)] = bytes;
  *handle = begin;
  count([](FakeCounts& all) { ++all.registered; });
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t communicator, void* handle) {
  Member& member = *communicator->member;
  const SharedRoom::Lock lock(*member.room);
  const bool known = member.registered.erase(static_cast<const char*>(handle)) > 0;
  const bool forbidden = !known || member.finalized || member.under_way > 0;
  count([&](FakeCounts& all) {
    all.misuses += forbidden;
    all.registered -= known;
  });
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Issued> issued = std::move(group);
  group.clear();
  for (Issued& one : issued) {
    {
      const SharedRoom::Lock lock(*one.member->room);
      ++one.member->under_way;
      one.member->questions = kQuestions;
      one.member->streams.insert(one.stream);
    }
    race_checker(one.stream->device())
        .launch(one.stream->number(), accesses_of(one), name_of(one.operations.front().call));
    DeviceEvent event{DeviceEvent::Kind::kGiven, one.stream->device(), one.stream->number(),
                      name_of(one.operations.front().call)};
    tell(event);
    one.stream->submit([event, run = FakeRun(one.member, std::move(one.operations))]() mutable {
      event.kind = DeviceEvent::Kind::kBegins;
      tell(event);
      run();
      event.kind = DeviceEvent::Kind::kDone;
      tell(event);
    });
  }
  return issued.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  add({Call::kSend, data, nullptr, count, type, ncclSum, peer}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  add({Call::kRecv, nullptr, data, count, type, ncclSum, peer}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  add({Call::kAllReduce, in, out, count, type, op}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t communicator, cudaStream_t stream) {
  add({Call::kReduce, in, out, count, type, op, root}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  add({Call::kBroadcast, in, out, count, type, ncclSum, root}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  add({Call::kAllGather, in, out, count, type}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream) {
  add({Call::kReduceScatter, in, out, count, type, op}, communicator, stream);
  return ncclSuccess;
}

}  // extern "C"
