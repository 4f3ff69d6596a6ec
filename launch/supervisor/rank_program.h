// The program of a rank, as its shim runs it.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "gantry/launch/supervisor/descriptor.h"
#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

class RankProgram {
 public:
  // Starts it. A program that can't be run says so on its stderr and ends with exit code 2.
  explicit RankProgram(const std::vector<std::string>& words);

  pid_t process() const { return process_; }
  // The read end of its stdout (0) and stderr (1), nonblocking; the caller's then.
  Descriptor take_stream(int i) { return std::move(streams_[static_cast<std::size_t>(i)]); }
  void signal(int number) const;
  bool ended() const { return ended_; }
  RankEnd end(bool notified) const;

  // After SIGCHLD: looks what became of it, and of those that it left behind, which are this process's children now.
  // Tells of a stop (its signal) and of going on (0).
  void reap(const std::function<void(int)>& tell_stopped);

 private:
  pid_t process_ = -1;
  std::array<Descriptor, 2> streams_;
  int status_ = 0;
  bool ended_ = false;
};

// Ends what the program started and left running.
void end_descendants();

// Removes what Open MPI's daemon does, unless it was killed: this rank's file in /dev/shm, whose others have mapped it
// by now.
void remove_shared_memory();

}  // namespace gantry::launcher
