// Disk work that other ranks wait for: as long as it moves, it may take as long as it takes.
//
// Operations of groups have the deadline of comm.timeout_seconds, which is about ranks that compute. A slow disk, or a
// checkpoint of a terabyte, is no fault. So while ranks read and write they tell each other, several times within that
// deadline, how far each is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "gantry/comm/process_group.h"
#include "gantry/core/file_system.h"

namespace gantry {

struct DiskLimits {
  double tell_seconds = 0.2;   // between words of how far the ranks are; several of them within comm.timeout_seconds
  double stall_seconds = 600;  // the job ends where no rank has moved a byte for so long
  std::function<void()> notified;  // called after each word of all ranks, from a thread of its own; for tests
};

// The limits for a job with that comm.timeout_seconds.
DiskLimits disk_limits(double timeout_seconds);

// How far one rank's disk work is, in bytes, or calls where there are no bytes. Any thread may add.
class DiskProgress {
 public:
  void add(std::uint64_t amount) noexcept { amount_.fetch_add(amount, std::memory_order_relaxed); }
  std::uint64_t amount() const noexcept { return amount_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> amount_{0};
};

// Runs `work` on this rank, and returns when that of all ranks is done. `progress` is what it adds to. PeerError naming
// the first rank that is not done where none has moved for stall_seconds. What `work` throws is thrown at once; other
// ranks learn of it as of any rank's failure. Collective over the group, which nothing else uses meanwhile.
void work_on_disk(ProcessGroup& group, const DiskLimits& limits, const DiskProgress& progress,
                  const std::function<void()>& work);

// The calls of another file system, each of which adds to a progress when it is done.
class WatchedFiles final : public FileSystem {
 public:
  WatchedFiles(FileSystem& files, DiskProgress& progress) : files_(files), progress_(progress) {}
  int create(const std::string& path) override { return seen(files_.create(path)); }
  ssize_t write(int file, const void* data, std::size_t bytes) override {
    return seen(files_.write(file, data, bytes));
  }
  int sync(int file) override { return seen(files_.sync(file)); }
  void begin_sync(int file, std::uint64_t begin, std::uint64_t bytes) override {
    files_.begin_sync(file, begin, bytes);
  }
  int close(int file) override { return seen(files_.close(file)); }
  int sync_folder(const std::string& path) override { return seen(files_.sync_folder(path)); }
  int rename(const std::string& from, const std::string& to) override { return seen(files_.rename(from, to)); }
  int unlink(const std::string& path) override { return seen(files_.unlink(path)); }
  int make_folder(const std::string& path) override { return seen(files_.make_folder(path)); }
  int remove_folder(const std::string& path) override { return seen(files_.remove_folder(path)); }
  std::uint64_t free_bytes(const std::string& path) override { return files_.free_bytes(path); }

 private:
  template <class Result>
  Result seen(Result result) noexcept {
    progress_.add(1);
    return result;
  }

  FileSystem& files_;
  DiskProgress& progress_;
};

}  // namespace gantry
