// What the fake's calls (fake_nccl.cpp) and its streams' work (fake_run.cpp) share.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "device_stream.h"
#include "fake_nccl.h"

namespace gantry::testing {

struct Operation {
  std::string kind;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;             // or the root
  bool registered = false;  // its operands are, with the communicator
  bool point_to_point() const { return kind == "ncclSend" || kind == "ncclRecv"; }
  auto signature() const { return std::tuple(kind, count, type, op, peer); }
};

// A collective in which members meet. The last to come does it for all.
struct Rendezvous {
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
  std::map<int, Rendezvous> meetings;  // by number of the collective
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Parcel>>> parcels;
};

struct Member {
  std::shared_ptr<Shared> shared;
  int rank = 0;
  ncclResult_t state = ncclSuccess;
  int questions = 0;  // that are still answered by "in progress"
  int under_way = 0, operations = 0, collectives = 0;
  bool aborted = false, finalized = false;
  std::set<PretendStream*> streams;               // that it has operated on
  std::map<const char*, std::size_t> registered;  // bytes, by first address
};

std::size_t bytes_of(const Operation& operation);  // of its count

FakeFault fault_for(const FakeCall& call);
void count_misuse();

// One group call of one member, on a stream's thread. Every wait ends when the member is aborted, as on a device.
class FakeRun {
 public:
  FakeRun(std::shared_ptr<Member> member, std::vector<Operation> operations)
      : member_(std::move(member)), operations_(std::move(operations)) {}
  void operator()();

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run(Lock& lock);
  template <class Ready>
  bool until(Lock& lock, Ready ready);
  bool begin(Lock& lock, const Operation& operation);
  std::shared_ptr<Parcel> post(const Operation& operation);
  bool receive(Lock& lock, const Operation& operation);
  bool meet(Lock& lock, const Operation& operation);

  const std::shared_ptr<Member> member_;
  const std::vector<Operation> operations_;
};

}  // namespace gantry::testing
