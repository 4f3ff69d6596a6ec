// Types shared by the calls of the fake NCCL (fake_nccl.cpp) and its work on streams (fake_run.cpp).
#pragma once

#include <map>
#include <memory>
#include <nccl.h>
#include <set>
#include <string>
#include <vector>

#include "device_stream.h"
#include "fake_nccl.h"
#include "shared_room.h"

namespace gantry::testing {

enum class Call { kSend, kRecv, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };
const char* name_of(Call call);  // "ncclSend"

struct Operation {
  Call call = Call::kSend;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;             // or the root
  bool registered = false;  // the operands are registered with the communicator
  bool point_to_point() const { return call == Call::kSend || call == Call::kRecv; }
  Signature signature() const { return {static_cast<int>(call), count, type, op, peer}; }
};

// One member of a communicator. The room's lock guards all fields except `room`, `rank` and `size`.
struct Member {
  std::shared_ptr<SharedRoom> room;
  int rank = 0, size = 0;
  ncclResult_t state = ncclSuccess;
  int questions = 0;  // status queries until the last call is reported as complete
  int under_way = 0, operations = 0;
  bool aborted = false, finalized = false;
  std::set<PretendStream*> streams;               // streams with operations of this member
  std::map<const char*, std::size_t> registered;  // first address -> bytes
};

std::size_t bytes_of(const Operation& operation);  // `count` elements, in bytes

FakeFault fault_for(const FakeCall& call);
void count_misuse();

// One group call of one member. It runs on the stream's thread. Like on a device, ncclCommAbort ends every
// wait.
class FakeRun {
 public:
  FakeRun(std::shared_ptr<Member> member, std::vector<Operation> operations)
      : member_(std::move(member)), operations_(std::move(operations)), moved_(operations_.size()) {}
  void operator()();

 private:
  using Lock = SharedRoom::Lock;
  void run(Lock& lock);
  template <class Ready>
  bool until(Lock& lock, Ready ready);
  bool begin(Lock& lock, const Operation& operation);
  bool exchange(Lock& lock);
  bool move_messages();
  void post(const Operation& operation);
  bool take(const Operation& operation);
  bool meet(Lock& lock, const Operation& operation);
  bool bring(Lock& lock, const Operation& operation);
  void take_results(const Operation& operation);

  std::shared_ptr<Member> member_;
  std::vector<Operation> operations_;
  std::vector<bool> moved_;   // per operation: the message was posted or received
  std::size_t slot_end_ = 0;  // offset of the next message in this member's slot
};

}  // namespace gantry::testing
