// Memory that the members of a fake communicator share. The members are threads or processes of one host. The
// memory holds the state of pending calls, and a slot for the data of each member.
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

// The properties of a collective that must be equal on all members.
struct Signature {
  int kind = 0;
  std::size_t count = 0;
  int type = 0, op = 0, root = 0;
  bool operator==(const Signature&) const = default;
};

// A message in flight, in the sender's slot.
struct Parcel {
  bool posted = false;
  std::size_t offset = 0, bytes = 0;
};

struct RoomState {
  pthread_mutex_t mutex;                  // guards all fields except `changes`
  std::atomic<std::uint32_t> changes{0};  // a futex
  int size = 0, joined = 0;
  pid_t processes[kMostMembers] = {};  // 0: has not joined
  bool left[kMostMembers] = {};        // has called ncclCommDestroy or ncclCommAbort

  // Per member: the number of collectives to which it has contributed, the last of these collectives, and the
  // number of members that have not yet read its last contribution.
  std::uint64_t brought[kMostMembers] = {};
  Signature signatures[kMostMembers] = {};
  bool registered[kMostMembers] = {};
  int readers[kMostMembers] = {};

  Parcel parcels[kMostMembers][kMostMembers] = {};  // by sender and receiver
};

class SharedRoom {
 public:
  static std::string new_id();  // creates a room, which exists as long as this process or its members use it
  // Returns the room with this id, or null if it no longer exists. All members of a process share one object.
  static std::shared_ptr<SharedRoom> enter(const std::string& id);

  explicit SharedRoom(int file);  // takes ownership of the file
  ~SharedRoom();
  SharedRoom(const SharedRoom&) = delete;
  SharedRoom& operator=(const SharedRoom&) = delete;

  // Holds the room's mutex. If a process ends while it holds the mutex, the others can acquire it.
  class Lock {
   public:
    explicit Lock(SharedRoom& room) : room_(room) { acquire(); }
    ~Lock() { release(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    void acquire();
    void release();
    // Releases the mutex until the state changes or some milliseconds have passed, and acquires it again.
    void wait();

   private:
    SharedRoom& room_;
  };

  RoomState& state() { return *state_; }  // under a Lock
  char* slot(int member);
  void tell_change();  // under a Lock

  void join(int member, int size);
  // Removes a member. Like NCCL, it waits until all members in other processes have left or their processes
  // have ended.
  void leave(int member);

 private:
  bool waits_for_others(int member);

  const int file_;
  RoomState* state_ = nullptr;
  char* memory_ = nullptr;
};

}  // namespace gantry::testing
