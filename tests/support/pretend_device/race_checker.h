// Finds accesses to device memory that no event, wait or stream puts in order, as torch.cuda._sanitizer does, whether
// or not they met this time.
//
// Each stream has a vector clock. A kernel ticks its stream's; an event takes a copy, and whoever waits for it (a
// stream, or the host) joins that. What the host has seen, all later kernels have. Two accesses to overlapping bytes,
// one of them a write, must be ordered. Memory that is freed must be out of use on every stream but the one that it was
// allocated on, or be recorded there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gantry::testing {

using Clock = std::vector<std::uint64_t>;  // by stream number; missing ones are 0

struct Access {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

// One device's. Its own mutex guards it.
class RaceChecker {
 public:
  // The next kernel of the stream.
  void launch(int stream, const std::vector<Access>& accesses, const std::string& what);

  Clock now(int stream);
  void stream_waits(int stream, const Clock& clock);
  void host_waits(const Clock& clock);

  void allocated(const void* begin, std::size_t bytes, int stream);
  // `recorded`: the streams that were named to the allocator as users.
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

// What was found since the last call, over all devices. The tests' listener fails the test whose kernels raced.
std::vector<std::string> take_races();
void report_race(const std::string& race);

}  // namespace gantry::testing
