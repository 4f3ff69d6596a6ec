// Controls of the fake NCCL for tests: faults, delays and counters.
#pragma once

#include <functional>
#include <string>

namespace gantry::testing {

enum class FakeFault {
  kNone,
  kHang,   // the operation never ends and reports no error
  kError,  // the operation never ends, and this member's communicator reports ncclRemoteError
  kDelay,  // the operation begins some milliseconds late
};

// An operation that is about to begin on a stream.
struct FakeCall {
  std::string kind;  // "ncclAllReduce"
  int size = 1;      // number of ranks in the communicator
  int rank = 0;      // in the communicator
  int number = 0;    // index of the operation on this communicator and member, from 0
};

// Sets the function that returns the fault of each operation. It is called on any thread. Null: no faults.
void set_fake_faults(std::function<FakeFault(const FakeCall&)> faults);
// False: new communicators stay in progress for ever.
void set_fake_joining(bool joins);

struct FakeCounts {
  int live = 0;       // communicators
  int narrow = 0;     // communicators that were made with maxCTAs, since the last reset
  int aborted = 0;    // by ncclCommAbort, since the last reset
  int destroyed = 0;  // by ncclCommDestroy after ncclCommFinalize
  // Number of calls that Gantry must not make. These are calls on a communicator in progress, outside a group
  // or without finalize, and blocking communicators. Operands must not be registered on only some members.
  // Memory and registrations must be released once and in the right order.
  int misuses = 0;
  int calls = 0;
  int memory = 0;            // live allocations of ncclMemAlloc
  int registered = 0;        // live registrations
  int registered_calls = 0;  // operations of members whose operands are registered, since the last reset
};
FakeCounts fake_counts();
void reset_fake_counts();

}  // namespace gantry::testing
