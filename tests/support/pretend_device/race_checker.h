// Finds conflicting accesses to device memory that no event, wait or stream orders, like
// torch.cuda._sanitizer. Finds them in every run, even if they did not overlap in time.
//
// Each stream has a vector clock, and so has the host. A kernel increments the clock of its stream. An event
// holds a copy of that clock, and a stream or the host that waits for the event merges the copy into its own
// clock. Each kernel also merges the host's clock into its stream's. Two accesses to overlapping bytes must
// be ordered if one of them is a write. When memory is freed, every stream other than its own must have
// finished with it, or must have been recorded as a user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gantry::testing {

using Clock = std::vector<std::uint64_t>;  // indexed by stream number; missing entries are 0

struct Access {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

// The race checker of one device. Thread-safe.
class RaceChecker {
 public:
  // Records the next kernel of the stream and its accesses.
  void launch(int stream, const std::vector<Access>& accesses, const std::string& what);

  Clock now(int stream);
  void stream_waits(int stream, const Clock& clock);
  void host_waits(const Clock& clock);

  void allocated(const void* begin, std::size_t bytes, int stream);
  // `recorded`: the streams that were recorded as users (record_stream()).
  void freed(const void* begin, const std::set<int>& recorded);

 private:
  struct Past {
    const char *begin, *end;
    int stream;
    std::uint64_t tick;
    bool writes;
    std::string what;
  };
  struct Block {
    const char* end;
    int stream;
    std::vector<Past> past;
  };

  Clock& clock_of(int stream);
  Block* block_at(const char* address);
  void check(Block& block, const Past& access);

  std::mutex mutex_;
  std::vector<Clock> clocks_;
  Clock host_;
  std::map<const char*, Block> blocks_;  // by first address
};

RaceChecker& race_checker(int device);

// Returns the races found since the last call, on all devices. A gtest listener fails the test whose kernels
// raced.
std::vector<std::string> take_races();
void report_race(const std::string& race);

}  // namespace gantry::testing
