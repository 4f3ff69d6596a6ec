// How ranks ended, and the outcome of the job that follows from it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gantry::launcher {

// The end of one rank's program, as its shim reported it.
struct RankEnd {
  enum class Kind {
    kExit,     // number: its exit code
    kSignal,   // number: the signal that ended it
    kStopped,  // number: the signal that stopped it, for longer than the launch waits
    kSilent,   // its shim sends no heartbeats
    kLost,     // its host is unreachable
    kLeft,     // its program lives, but has left the job before its work was done
    kNever,    // it never began
  };
  int rank = 0;
  Kind kind = Kind::kExit;
  int number = 0;
  bool notified = false;  // mpirun or the launch had notified it to end before
  std::string host;

  bool failed() const { return kind != Kind::kExit || (number != 0 && number != 75); }
  int exit_code() const;  // exit code of the job, if the job ends because of this rank
};

// "exit 3", "signal 9 notified": the report of a shim.
std::string encode_end(const RankEnd& end);
std::optional<RankEnd> decode_end(const std::string& bytes);

// "rank 2 on host a was killed by SIGSEGV".
std::string describe_end(const RankEnd& end);
std::string signal_name(int number);

// Everything that is known about one start of a job.
struct JobEnd {
  std::vector<RankEnd> ranks;      // in the order in which they ended
  std::string starter = "mpirun";  // the program that started the ranks
  int mpirun_code = 0;             // or the negative number of the signal that ended it
  bool mpirun_first = false;       // a signal ended mpirun before any rank had failed
  int aborted_by = -1;             // the rank that called MPI_Abort, according to mpirun; -1: none
  int asked_by = 0;                // the signal that asked the launch to stop; 0: none
  bool forced = false;             // the stop was requested twice, or the job did not end by itself
};

struct Verdict {
  int exit_code = 0;
  std::string line;           // the error, naming the rank; empty without one
  std::string cause;          // identifies the failure: equal for two failures of the same kind
  bool mpirun_knows = false;  // no rank has reported a cause; mpirun's output has it
};

// The verdict is the first failure, and not one of its consequences. Ranks that had been notified to end are
// ignored. So is a rank that ended with code 7 (peer lost), if there is another failure. The exit code is 7
// for a rank that was killed by a signal, was lost, or ended before the others. Without such a rank it is
// mpirun's code (MPI_Abort). It is 75 if the job stopped on request, and 128 + the signal if the job was
// ended at once or does not handle the request.
Verdict judge(const JobEnd& end);

}  // namespace gantry::launcher
