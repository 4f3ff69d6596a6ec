// What the records of a job's ranks say: who waited for whom, and why, in one sentence.
#pragma once

#include <string>
#include <vector>

#include "gantry/diagnosis/record_reader.h"

namespace gantry::recorder {

enum class Finding {
  kNothing,        // nothing is stuck
  kCallsDiffer,    // members of a group made different calls, or in another order
  kTensorsDiffer,  // shapes, dtypes or reductions differ
  kStopped,        // the process of the rank that is waited for did not run
  kRankFailed,     // a rank ended by an error of its own
  kCycle,          // ranks wait for each other
  kNoFile,         // the rank that is waited for left no file
  kRankEnded,      // ... has ended
  kNeverJoined,    // ... has not made the group, and is outside communication
  kNoSend,         // ... has sent something else, which nobody asked for
  kNotReached,     // ... has not come to the operation, and is outside communication
  kNotFinished     // all have done their part, and it has not arrived
};
const char* name_of(Finding finding);  // "calls_differ"

// A rank that is blocked, as text.
struct Wait {
  int rank = 0;
  std::string operation;  // "all_reduce 17 of group 'tp' (float32 [4])"
  double seconds = 0;
  std::vector<int> ranks;  // waited for
};

struct Diagnosis {
  Finding finding = Finding::kNothing;
  std::string sentence;
  std::vector<Wait> waits;         // the longest first
  std::vector<std::string> notes;  // what is worth knowing besides
};

// Where nobody failed, waits shorter than `stuck_after_seconds` for a rank that goes on working are no reason to worry.
Diagnosis diagnose(const JobRecords& job, double stuck_after_seconds);

// What is to be said by now of the files in `folder`; "" if nothing, or if they can't be read.
std::string sentence_of(const std::string& folder);

}  // namespace gantry::recorder
