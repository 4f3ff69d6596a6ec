// A file system that fails, or kills the process, at a chosen call. The calls of all threads are counted
// together. Its sync() does nothing, because the kernel keeps the written pages of a killed process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <limits>

#include "gantry/core/file_system.h"

namespace gantry::testing {

class FaultyFiles final : public FileSystem {
 public:
  enum class Fault { kNone, kKill, kFail, kShortWrites };

  Fault fault = Fault::kNone;
  int at = -1;                                           // index of the call with the fault, from 0
  int error = ENOSPC;                                    // kFail: errno of the failing call
  bool from_there_on = false;                            // later calls fail too; with kFail, except removals
  std::function<void(const std::string& to)> renamed;    // called after each successful rename
  std::function<bool(const std::string& path)> is_held;  // true for files that cannot be removed, as on NFS
  std::function<void()> before_write;                    // called before each write
  std::uint64_t room = std::numeric_limits<std::uint64_t>::max();

  int calls() const { return calls_; }

  int create(const std::string& path) override { return hit() ? -1 : FileSystem::create(path); }
  ssize_t write(int file, const void* data, std::size_t bytes) override {
    if (before_write) before_write();
    const int call = calls_++;
    if (fault == Fault::kShortWrites) return FileSystem::write(file, data, bytes > 3 ? bytes / 3 : bytes);
    if (!strikes(call)) return FileSystem::write(file, data, bytes);
    if (bytes > 1) (void)!FileSystem::write(file, data, bytes / 2);  // a partial write
    return strike();
  }
  int sync(int) override { return hit() ? -1 : 0; }
  int sync_folder(const std::string&) override { return hit() ? -1 : 0; }
  int rename(const std::string& from, const std::string& to) override {
    if (hit()) return -1;
    const int failed = FileSystem::rename(from, to);
    if (failed == 0 && renamed) renamed(to);
    return failed;
  }
  int make_folder(const std::string& path) override { return hit() ? -1 : FileSystem::make_folder(path); }
  int unlink(const std::string& path) override {
    if (is_held && is_held(path)) {
      errno = EBUSY;
      return -1;
    }
    if (fault == Fault::kKill && hit()) return -1;
    return FileSystem::unlink(path);
  }
  int remove_folder(const std::string& path) override {
    if (fault == Fault::kKill && hit()) return -1;
    return FileSystem::remove_folder(path);
  }
  std::uint64_t free_bytes(const std::string& path) override { return std::min(room, FileSystem::free_bytes(path)); }

 private:
  bool strikes(int call) const {
    if (fault == Fault::kNone || fault == Fault::kShortWrites) return false;
    return call == at || (from_there_on && call > at);
  }
  int strike() const {
    if (fault == Fault::kKill) ::raise(SIGKILL);
    errno = error;
    return -1;
  }
  bool hit() { return strikes(calls_++) && strike() != 0; }

  std::atomic<int> calls_{0};
};

}  // namespace gantry::testing
