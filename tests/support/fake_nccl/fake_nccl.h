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
  int aborted = 0;    // by ncclCommAbort, since the last reset
  int destroyed = 0;  // by ncclCommDestroy after ncclCommFinalize
  int misuses = 0;    // calls that NCCL forbids: on a communicator in progress, without finalize, outside a group
  int calls = 0;
};
FakeCounts fake_counts();
void reset_fake_counts();

}  // namespace gantry::testing
