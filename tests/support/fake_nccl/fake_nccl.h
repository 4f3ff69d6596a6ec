// What tests ask of the fake NCCL beside its calls: faults, delays, counts.
#pragma once

#include <functional>
#include <string>

namespace gantry::testing {

enum class FakeFault {
  kNone,
  kHang,   // the operation never ends; nobody says so
  kError,  // it never ends, and this member's communicator reports ncclRemoteError
  kDelay,  // it begins some milliseconds late
};

// An operation that is about to begin on a stream.
struct FakeCall {
  std::string kind;  // "ncclAllReduce"
  int size = 1;      // of the communicator
  int rank = 0;      // in it
  int number = 0;    // of this member's operations on it, from 0
};

// Asked for each operation, on any thread; null: no faults.
void set_fake_faults(std::function<FakeFault(const FakeCall&)> faults);
// Whether a new communicator is ever ready.
void set_fake_joining(bool joins);

struct FakeCounts {
  int live = 0;       // communicators
  int narrow = 0;     // communicators that were made with maxCTAs, since the last reset
  int aborted = 0;    // by ncclCommAbort, since the last reset
  int destroyed = 0;  // by ncclCommDestroy after ncclCommFinalize
  // Calls that NCCL forbids: on a communicator in progress, without finalize, outside a group; of memory that not all
  // members have registered; a registration or memory that is given back twice or in the wrong order.
  int misuses = 0;
  int calls = 0;
  int memory = 0;            // allocations that live, by ncclMemAlloc
  int registered = 0;        // registrations that live
  int registered_calls = 0;  // operations of members whose operands are registered, since the last reset
};
FakeCounts fake_counts();
void reset_fake_counts();

}  // namespace gantry::testing
