// How long a rank waits for others: until it says so, and until the job ends.
#pragma once

#include <atomic>
#include <string>

namespace gantry {

struct WaitLimits {
  double timeout_seconds = 60;  // then the job ends with PeerError
  double notice_seconds = 15;   // then a line names who is waited for, where the deadline is later
};

// The failure of a wait that can't end: `who` waits for `what` ("all_reduce of float32 [4], which rank 1 has not
// joined"), and `ended` has ended its work.
std::string ended_early_text(const std::string& who, const std::string& what, const std::string& ended);

// The lines of waits that have become long, on stderr: whoever is stuck is named while it may still go on. Called from
// any rank's thread.
class SlowWaitNotices {
 public:
  explicit SlowWaitNotices(const WaitLimits& limits) : limits_(limits) {}
  // Of waiting, until say() is due; infinite where the deadline comes first or enough was said.
  double due_seconds() const;
  // "warning: <waited>; ...": `waited` says who has waited how long for what and whom.
  void say(const std::string& waited);

 private:
  static constexpr int kMost = 8;  // a run that is merely slow must not fill its log
  const WaitLimits limits_;
  std::atomic<int> said_{0};
};

}  // namespace gantry
