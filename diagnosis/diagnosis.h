// Diagnoses a job from the records of its ranks: which rank waited for which, and why, in one sentence.
#pragma once

#include <string>
#include <vector>

#include "gantry/diagnosis/record_reader.h"

namespace gantry::recorder {

enum class Finding {
  kNothing,        // nothing is stuck
  kCallsDiffer,    // members of a group made different calls, or the same ones in a different order
  kTensorsDiffer,  // shapes, dtypes or reductions differ
  kStopped,        // the process of the awaited rank was suspended
  kRankFailed,     // a rank ended with an error of its own
  kCycle,          // ranks wait for each other
  kNoFile,         // the awaited rank left no file
  kRankEnded,      // the awaited rank has ended
  kNeverJoined,    // the awaited rank has not created the group, and is outside communication
  kNoSend,         // the awaited rank has sent another message, which no rank has requested
  kNotReached,     // the awaited rank has not reached the operation, and is outside communication
  kNotFinished     // all ranks have done their part, but the operation does not complete
};
const char* name_of(Finding finding);  // "calls_differ"

// A blocked rank, as text.
struct Wait {
  int rank = 0;
  std::string operation;  // "all_reduce 17 of group 'tp' (float32 [4])"
  double seconds = 0;
  std::vector<int> ranks;  // awaited ranks
};

struct Diagnosis {
  Finding finding = Finding::kNothing;
  std::string sentence;
  std::vector<Wait> waits;         // the longest wait first
  std::vector<std::string> notes;  // further remarks
};

// If no rank failed, waits shorter than `stuck_after_seconds` for a rank that continues to work are not reported.
Diagnosis diagnose(const JobRecords& job, double stuck_after_seconds);

// The diagnosis of the files in `folder` at this time; "" if there is nothing to report, or if they cannot be read.
std::string sentence_of(const std::string& folder);

}  // namespace gantry::recorder
