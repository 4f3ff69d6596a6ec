// The program of a rank, which its shim runs.
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
  // Starts the program. If the program cannot be run, the child prints an error on its stderr and ends with
  // exit code 2.
  explicit RankProgram(const std::vector<std::string>& words);

  pid_t process() const { return process_; }
  // Returns the read end of stdout (0) or stderr (1), nonblocking. The caller owns it then.
  Descriptor take_stream(int i) { return std::move(streams_[static_cast<std::size_t>(i)]); }
  void signal(int number) const;
  bool ended() const { return ended_; }
  RankEnd end(bool notified) const;

  // To be called after SIGCHLD. Collects the state of the program, and of processes that it left behind,
  // which are children of this process now. Calls `tell_stopped` if the program was stopped (with the signal)
  // or continues (with 0).
  void reap(const std::function<void(int)>& tell_stopped);

 private:
  pid_t process_ = -1;
  std::array<Descriptor, 2> streams_;
  int status_ = 0;
  bool ended_ = false;
};

// Kills the processes that the program started and left running.
void end_descendants();

// Removes this rank's shared-memory file of Open MPI in /dev/shm. Open MPI's daemon does so too, unless it
// was killed. The other ranks have mapped the file by now.
void remove_shared_memory();

}  // namespace gantry::launcher
