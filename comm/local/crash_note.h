// Who it was when a crash takes a process of rank threads: a fatal signal's last words.
#pragma once

#include <array>
#include <csignal>
#include <memory>
#include <string>

namespace gantry {

// While it lives, SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT first write "error: <rank>: ended by SIGSEGV" to stderr
// and then do what they always do; signals that have a handler already keep it. And exit() on a rank's thread, which
// would end the work of all with the code of a job that is done, says so and ends the process with PeerError's. One at
// a time in a process.
class CrashNote {
 public:
  CrashNote();
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

  // A rank's work on the thread that makes it, from here to its end; crashes afterwards still have the name.
  // Until its end handlers have a stack of their own on this thread, unless it has one: a stack that has run over
  // leaves them no room.
  class RankThread {
   public:
    explicit RankThread(const std::string& rank);
    ~RankThread();
    RankThread(const RankThread&) = delete;
    RankThread& operator=(const RankThread&) = delete;

   private:
    std::unique_ptr<char[]> stack_;
  };

 private:
  static constexpr std::array<int, 5> kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  std::array<bool, kSignals.size()> caught_{};
};

}  // namespace gantry
