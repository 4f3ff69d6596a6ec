// Ranks, calls and waits in words, for a diagnosis.
#pragma once

#include <string>

#include "gantry/diagnosis/chains.h"

namespace gantry::recorder {

class CallWords {
 public:
  // Keeps a reference to `waits`.
  explicit CallWords(const Waits& waits) : waits_(waits) {}

  // "rank 1 (pp 0, dp 0, tp 1)"
  std::string name(int rank) const;
  // "all_reduce 17 of group 'tp' (float32 [4])", with the peer of a message.
  std::string describe_call(int rank, const Operation& operation) const;
  std::string describe_call(const Blocked& blocked) const { return describe_call(blocked.rank, *blocked.operation); }
  // "rank 1 (...) to join all_reduce 17 of group 'tp' (float32 [4])"
  std::string describe_link(const Link& link) const;
  // The state of the last rank of a chain, as a relative clause.
  std::string describe_end(const Link& link) const;

 private:
  std::string describe_state(const Link& link, const std::string& subject) const;
  std::string describe_last(const RankRecord& record) const;

  const Waits& waits_;
};

// "all_reduce of float32 [4] (sum)"
std::string describe_as_call(const Operation& operation);
// "all_reduce 17 of group 'tp' (float32 [4])"
std::string with_tensor(const Operation& operation, const Group& group);

}  // namespace gantry::recorder
