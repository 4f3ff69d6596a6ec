#include "fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <thread>
#include <tuple>
#include <vector>

#include "fake_device.h"
#include "gantry/comm/reduce_kernels.h"

namespace gantry::testing {
namespace {

struct Operation {
  std::string kind;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // or the root
  bool point_to_point() const { return kind == "ncclSend" || kind == "ncclRecv"; }
  auto signature() const { return std::tuple(kind, count, type, op, peer); }
};

// A collective in which members meet. The last to come does it for all.
struct Meeting {
  std::vector<const Operation*> members;
  int here = 0;
  bool done = false, broken = false;
};

struct Parcel {
  const void* data;
  std::size_t bytes;
  bool taken = false;
};

// What the members of a communicator share; all of it, theirs too, is guarded by `mutex`.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0, joined = 0;
  std::map<int, Meeting> meetings;  // by number of the collective
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Parcel>>> parcels;
};

struct Member {
  std::shared_ptr<Shared> shared;
  int rank = 0;
  ncclResult_t state = ncclSuccess;
  int questions = 0;  // that are still answered by "in progress"
  int under_way = 0, operations = 0, collectives = 0;
  bool aborted = false, finalized = false;
};

std::mutex control_mutex;  // guards the following
std::function<FakeFault(const FakeCall&)> faults;
bool joining = true;
FakeCounts counts;
std::map<std::string, std::weak_ptr<Shared>> jobs;  // by unique id

template <class Change>
void count(Change change) {
  const std::lock_guard lock(control_mutex);
  change(counts);
}

FakeFault fault_for(const FakeCall& call) {
  std::function<FakeFault(const FakeCall&)> ask;
  {
    const std::lock_guard lock(control_mutex);
    ++counts.calls;
    ask = faults;
  }
  return ask ? ask(call) : FakeFault::kNone;
}

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

std::size_t bytes_of(const Operation& operation) {
  return operation.count * c10::elementSize(scalar_of(operation.type));
}

std::vector<char> reduce(const Meeting& meeting, std::size_t count) {
  const Operation& first = *meeting.members[0];
  std::vector<const void*> inputs;
  for (const Operation* one : meeting.members) inputs.push_back(one->in);
  std::vector<char> sum(count * c10::elementSize(scalar_of(first.type)));
  const ReduceOp op = first.op == ncclSum ? ReduceOp::kSum : first.op == ncclMax ? ReduceOp::kMax : ReduceOp::kMin;
  reduce_span(sum.data(), inputs.data(), static_cast<int>(inputs.size()), static_cast<std::int64_t>(count),
              scalar_of(first.type), op);
  return sum;
}

void perform(const Meeting& meeting) {
  const Operation& first = *meeting.members[0];
  const std::size_t bytes = bytes_of(first), size = meeting.members.size();
  const auto give = [&](const Operation* to, const char* from) { std::memcpy(to->out, from, bytes); };
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
    const auto* from = static_cast<const char*>(meeting.members[first.peer]->in);
    const std::vector<char> value(from, from + bytes);
    for (const Operation* one : meeting.members) give(one, value.data());
  } else {  // ncclAllGather
    std::vector<char> whole(size * bytes);
    for (std::size_t i = 0; i < size; ++i) std::memcpy(whole.data() + i * bytes, meeting.members[i]->in, bytes);
    for (const Operation* one : meeting.members) std::memcpy(one->out, whole.data(), whole.size());
  }
}

// One group call of one member, on a stream's thread. Every wait ends when the member is aborted, as on a device.
class Run {
 public:
  Run(std::shared_ptr<Member> member, std::vector<Operation> operations)
      : member_(std::move(member)), operations_(std::move(operations)) {}

  void operator()() {
    std::unique_lock lock(member_->shared->mutex);
    run(lock);
    --member_->under_way;
    member_->shared->changed.notify_all();
  }

 private:
  void run(std::unique_lock<std::mutex>& lock) {
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

  template <class Ready>
  bool until(std::unique_lock<std::mutex>& lock, Ready ready) {
    member_->shared->changed.wait(lock, [&] { return member_->aborted || ready(); });
    return !member_->aborted;
  }

  bool begin(std::unique_lock<std::mutex>& lock, const Operation& operation) {
    const FakeCall call{operation.kind, member_->shared->size, member_->rank, member_->operations++};
    lock.unlock();
    const FakeFault fault = fault_for(call);
    if (fault == FakeFault::kDelay) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    lock.lock();
    if (fault == FakeFault::kError) member_->state = ncclRemoteError;
    if (fault == FakeFault::kError || fault == FakeFault::kHang) return until(lock, [] { return false; });
    return !member_->aborted;
  }

  std::shared_ptr<Parcel> post(const Operation& operation) {
    auto parcel = std::make_shared<Parcel>(Parcel{operation.in, bytes_of(operation)});
    member_->shared->parcels[{member_->rank, operation.peer}].push_back(parcel);
    member_->shared->changed.notify_all();
    return parcel;
  }

  bool receive(std::unique_lock<std::mutex>& lock, const Operation& operation) {
    auto& box = member_->shared->parcels[{operation.peer, member_->rank}];
    if (!until(lock, [&] { return !box.empty(); })) return false;
    const auto parcel = box.front();
    if (parcel->bytes != bytes_of(operation)) {
      member_->state = ncclInvalidUsage;  // NCCL itself would write over something
      return until(lock, [] { return false; });
    }
    std::memcpy(operation.out, parcel->data, parcel->bytes);
    parcel->taken = true;
    box.pop_front();
    member_->shared->changed.notify_all();
    return true;
  }

  bool meet(std::unique_lock<std::mutex>& lock, const Operation& operation) {
    Shared& shared = *member_->shared;
    Meeting& meeting = shared.meetings[member_->collectives++];
    meeting.members.resize(shared.size);
    meeting.members[member_->rank] = &operation;
    if (++meeting.here == shared.size) {
      for (const Operation* one : meeting.members)
        if (one->signature() != operation.signature()) meeting.broken = true;
      if (!meeting.broken) perform(meeting);
      meeting.done = !meeting.broken;
      shared.changed.notify_all();
    }
    const bool done = until(lock, [&] { return meeting.done; }) || meeting.done;
    if (!done) meeting.broken = true;
    return done;
  }

  const std::shared_ptr<Member> member_;
  const std::vector<Operation> operations_;
};

struct Issued {
  std::shared_ptr<Member> member;
  FakeStream* stream;
  std::vector<Operation> operations;
};
thread_local int group_depth = 0;
thread_local std::vector<Issued> group;

}  // namespace

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
  counts = {.live = counts.live};
}

}  // namespace gantry::testing

using namespace gantry::testing;

struct ncclComm {
  std::shared_ptr<Member> member;
};

namespace {

// How often a call that was accepted answers "in progress".
constexpr int kQuestions = 2;

void add(const Operation& operation, ncclComm_t communicator, cudaStream_t stream) {
  {
    const std::lock_guard lock(communicator->member->shared->mutex);
    if (communicator->member->questions > 0 || group_depth == 0) count([](FakeCounts& all) { ++all.misuses; });
  }
  auto* queue = reinterpret_cast<FakeStream*>(stream);
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
  static std::atomic<int> next{0};
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "fake %d", next++);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "a fake remote error" : code == ncclInvalidUsage ? "a fake invalid usage" : "fake";
}

const char* ncclGetLastError(ncclComm_t) { return "the cable is cut"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  auto member = std::make_shared<Member>();
  member->rank = rank;
  {
    const std::lock_guard lock(control_mutex);
    auto& job = jobs[id.internal];
    member->shared = job.lock();
    if (!member->shared) job = member->shared = std::make_shared<Shared>();
    ++counts.live;
    if (config->blocking != 0) ++counts.misuses;
  }
  const std::lock_guard lock(member->shared->mutex);
  member->shared->size = ranks;
  ++member->shared->joined;
  member->questions = kQuestions;
  *communicator = new ncclComm{std::move(member)};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  bool may_join = true;
  count([&](FakeCounts&) { may_join = joining; });
  Member& member = *communicator->member;
  const std::lock_guard lock(member.shared->mutex);
  const bool joined = may_join && member.shared->joined == member.shared->size;
  const bool busy =
      !joined || (member.finalized && member.under_way > 0) || (member.questions > 0 && --member.questions > 0);
  *state = member.state != ncclSuccess ? member.state : busy ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  Member& member = *communicator->member;
  const std::lock_guard lock(member.shared->mutex);
  member.finalized = true;
  member.questions = kQuestions;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  {
    Member& member = *communicator->member;
    const std::lock_guard lock(member.shared->mutex);
    const bool forbidden = !member.finalized || member.under_way > 0;
    count([&](FakeCounts& all) {
      all.misuses += forbidden;
      ++all.destroyed;
      --all.live;
    });
  }
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  {
    Member& member = *communicator->member;
    std::unique_lock lock(member.shared->mutex);
    member.aborted = true;
    member.shared->changed.notify_all();
    member.shared->changed.wait(lock, [&] { return member.under_way == 0; });
  }
  count([](FakeCounts& all) {
    ++all.aborted;
    --all.live;
  });
  delete communicator;
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
      const std::lock_guard lock(one.member->shared->mutex);
      ++one.member->under_way;
      one.member->questions = kQuestions;
    }
    one.stream->add(Run(one.member, std::move(one.operations)));
  }
  return issued.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  add({"ncclSend", data, nullptr, count, type, ncclSum, peer}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  add({"ncclRecv", nullptr, data, count, type, ncclSum, peer}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  add({"ncclAllReduce", in, out, count, type, op}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t communicator, cudaStream_t stream) {
  add({"ncclReduce", in, out, count, type, op, root}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  add({"ncclBroadcast", in, out, count, type, ncclSum, root}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  add({"ncclAllGather", in, out, count, type}, communicator, stream);
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream) {
  add({"ncclReduceScatter", in, out, count, type, op}, communicator, stream);
  return ncclSuccess;
}

}  // extern "C"
