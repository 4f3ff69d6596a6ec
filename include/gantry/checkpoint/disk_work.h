// Disk work that other ranks wait for. It may take any time as long as it makes progress.
//
// Operations of groups have the deadline comm.timeout_seconds, which is meant for ranks that compute. Slow disks, large
// checkpoints and data that have to be encoded are not failures. While ranks read and write, they therefore exchange
// their progress several times within that deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "gantry/comm/process_group.h"
#include "gantry/core/file_system.h"

namespace gantry {

struct DiskLimits {
  double tell_seconds = 0.2;   // interval of progress messages, several of which must fit in comm.timeout_seconds
  double stall_seconds = 600;  // the job ends if no rank makes progress for this long
  const char* work = "reading or writing a checkpoint";  // for the error
  std::function<void()> notified;  // called after each exchange of progress, from a separate thread; for tests
};

// The limits for a job with this comm.timeout_seconds.
DiskLimits disk_limits(double timeout_seconds, const char* work = DiskLimits().work);

// The progress of one rank's work, in bytes, or in calls if there are no bytes. Thread-safe.
class DiskProgress {
 public:
  void add(std::uint64_t amount) noexcept { amount_.fetch_add(amount, std::memory_order_relaxed); }
  std::uint64_t amount() const noexcept { return amount_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> amount_{0};
};

// Runs `work` on this rank, and returns when the work of all ranks is done. `work` adds its progress to `progress`.
// Throws PeerError that names the first unfinished rank if no rank makes progress for stall_seconds. Exceptions of
// `work` are thrown at once, and other ranks are notified as for any failure. Collective over the group, which must not
// be used otherwise during the call.
void work_on_disk(ProcessGroup& group, const DiskLimits& limits, const DiskProgress& progress,
                  const std::function<void()>& work);

// Forwards the calls to another file system, and adds 1 to a progress after each call.
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
