// How ranks ended, and what that makes of the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gantry::launcher {

// How one rank's program ended, as its shim saw it.
struct RankEnd {
  enum class Kind {
    kExit,     // number: its exit code
    kSignal,   // number: the signal that ended it
    kStopped,  // number: the signal that stopped it, for longer than the launch waits
    kSilent,   // its shim gives no sign of life
    kLost,     // its host is out of reach
    kLeft,     // its program lives, but has left the job before its work was done
    kNever,    // it never began
  };
  int rank = 0;
  Kind kind = Kind::kExit;
  int number = 0;
  bool notified = false;  // mpirun or the launch had notified it to end before
  std::string host;

  bool failed() const { return kind != Kind::kExit || (number != 0 && number != 75); }
  int exit_code() const;  // of the job, if it is for this rank's sake that it ends
};

// "exit 3", "signal 9 notified": a shim's report.
std::string encode_end(const RankEnd& end);
std::optional<RankEnd> decode_end(const std::string& bytes);

// "rank 2 on host a was killed by SIGSEGV".
std::string describe_end(const RankEnd& end);
std::string signal_name(int number);

// All that is known of one start of a job.
struct JobEnd {
  std::vector<RankEnd> ranks;      // in the order in which they ended
  std::string starter = "mpirun";  // the program that started the ranks
  int mpirun_code = 0;             // or the signal that ended it, negative
  bool mpirun_first = false;       // a signal ended mpirun before any rank had failed
  int aborted_by = -1;             // the rank that called MPI_Abort, where mpirun said one
  int asked_by = 0;                // the signal that asked the launch to stop; 0: none
  bool forced = false;             // it was asked twice, or did not end by itself
};

struct Verdict {
  int exit_code = 0;
  std::string line;           // what happened, naming the rank; empty if all is well
  std::string cause;          // the failure without what differs between two of the same
  bool mpirun_knows = false;  // no rank says more: mpirun's own words do
};

// The first failure makes the verdict, not its consequences: ranks that had been notified to end are ignored, nor
// does a rank's 7 (peer lost) where another failure stands beside it. A rank that a signal killed, that is lost or that
// ended before the others makes 7. Without such a rank it is mpirun's code that counts (MPI_Abort). 75 where the job
// stopped on request; 128 + the signal where it was ended at once or knew no better.
Verdict judge(const JobEnd& end);

}  // namespace gantry::launcher
