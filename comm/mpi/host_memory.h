// Memory that the ranks of one host share, and the doorbells by which they wake each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

namespace gantry {

inline constexpr std::int64_t kPageBytes = 4096;
inline std::int64_t whole_pages(std::int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Has no name in any file system: it is gone with its last process, however that ends, and /dev/shm's size does not
// limit it. Pages take memory when they are first touched.
class HostMemory {
 public:
  // Collective over `members`, all on one host. Zeros. Null, on every member, where one of them can't map it; `trouble`
  // then says why.
  static std::shared_ptr<HostMemory> create(MPI_Comm members, std::size_t bytes, std::string& trouble);
  // Of this process alone.
  static std::shared_ptr<HostMemory> own(std::size_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }

 private:
  HostMemory(char* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  std::size_t bytes_;
};

// A word each member of a host may sleep at. Shared between processes and threads: all of it is atomic.
//
// A sleeper announces itself, looks once more for what it waits for, and sleeps; who changes something that others may
// wait for rings them afterwards. Both sides have a full fence between, so one of them sees the other.
class Doorbells {
 public:
  static std::size_t bytes(int members) { return members * sizeof(Bell); }
  Doorbells(std::shared_ptr<HostMemory> memory, int mine)
      : memory_(std::move(memory)), bells_(reinterpret_cast<Bell*>(memory_->data())), mine_(mine) {}

  void ring(const std::vector<int>& members);  // this rank is left out
  // Before the last look; what it returns goes to sleep(). Every announce() is followed by leave().
  std::uint32_t announce();
  void sleep(std::uint32_t rings, std::chrono::microseconds longest);
  void leave();

 private:
  struct alignas(64) Bell {
    std::atomic<std::uint32_t> rings, sleepers;
  };
  std::shared_ptr<HostMemory> memory_;
  Bell* bells_;
  int mine_;
};

}  // namespace gantry
