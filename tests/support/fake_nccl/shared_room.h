// Memory that the members of a fake communicator share, which are threads or processes of one host. It has the state of
// pending calls, and a slot for the bytes of each member.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <string>
#include <sys/types.h>

namespace gantry::testing {

inline constexpr int kMostMembers = 32;
inline constexpr std::size_t kSlotBytes = std::size_t{1} << 26;  // per member; only used pages cost memory

// Members must agree on this in a collective.
struct Signature {
  int kind = 0;
  std::size_t count = 0;
  int type = 0, op = 0, root = 0;
  bool operator==(const Signature&) const = default;
};

// A message on its way, in the sender's slot.
struct Parcel {
  bool posted = false;
  std::size_t offset = 0, bytes = 0;
};

struct RoomState {
  pthread_mutex_t mutex;                  // guards the rest but `changes`
  std::atomic<std::uint32_t> changes{0};  // a futex
  int size = 0, joined = 0;
  pid_t processes[kMostMembers] = {};  // 0: has not joined
  bool left[kMostMembers] = {};        // has called ncclCommDestroy or ncclCommAbort

  // The collective that each member has brought its part of, by how many it has brought; and how many members have not
  // taken that part yet.
  std::uint64_t brought[kMostMembers] = {};
  Signature signatures[kMostMembers] = {};
  bool registered[kMostMembers] = {};
  int readers[kMostMembers] = {};

  Parcel parcels[kMostMembers][kMostMembers] = {};  // by sender and receiver
};

class SharedRoom {
 public:
  static std::string new_id();  // names a room, which lasts while this process has it or members in it
  // Null if there is no such room any more. The same object for all members of a process.
  static std::shared_ptr<SharedRoom> enter(const std::string& id);

  explicit SharedRoom(int file);  // which it owns
  ~SharedRoom();
  SharedRoom(const SharedRoom&) = delete;
  SharedRoom& operator=(const SharedRoom&) = delete;

  // Holds the room's mutex. A process that ended while it had it leaves it to the others.
  class Lock {
   public:
    explicit Lock(SharedRoom& room) : room_(room) { acquire(); }
    ~Lock() { release(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    void acquire();
    void release();
    // Releases it until something has changed, or some milliseconds are over.
    void wait();

   private:
    SharedRoom& room_;
  };

  RoomState& state() { return *state_; }  // under a Lock
  char* slot(int member);
  void tell_change();  // under a Lock

  void join(int member, int size);
  // A member's end. Like NCCL's, it waits until every member of another process has left too, or its process has ended.
  void leave(int member);

 private:
  bool waits_for_others(int member);

  const int file_;
  RoomState* state_ = nullptr;
  char* memory_ = nullptr;
};

}  // namespace gantry::testing
