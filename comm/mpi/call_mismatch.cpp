#include "gantry/comm/mpi/call_mismatch.h"

#include <fmt/format.h>

namespace gantry {

std::string describe_awaited(const MpiChannel& channel, const CollectiveCall& call, const std::vector<int>& absent,
                             bool passed_on) {
  return fmt::format(
      "{}, number {} of group '{}', which {}{}", call.describe(), call.sequence, channel.label(),
      absent.empty() ? "others have not taken their parts of" : channel.describe_members(absent) + " has not joined",
      passed_on && !absent.empty() ? ", or waits in for others" : "");
}

std::string describe_sizes(const MpiChannel& channel, const CollectiveCall& call, int peer, std::int64_t expected,
                           std::int64_t received) {
  const std::string sent = received < 0 ? fmt::format("more than {}", expected) : std::to_string(received);
  return fmt::format(
      "group '{}': {} called {} and got {} bytes from {} where {} belong; all members must make the same calls in the "
      "same order",
      channel.label(), channel.describe_member(channel.rank()), call.describe(), sent, channel.describe_member(peer),
      expected);
}

std::string describe_calls(const MpiChannel& channel, const std::string& mine, int peer, const std::string& theirs) {
  return fmt::format(
      "group '{}': {} called {} while {} called {}; all members must make the same calls in the same order",
      channel.label(), channel.describe_member(channel.rank()), mine, channel.describe_member(peer), theirs);
}

std::string find_other_call(const MpiChannel& channel, const CollectiveCall& call, const std::vector<int>& missing) {
  for (const int peer : missing)
    for (int code = 0; code < call_codes(); ++code) {
      if (code == call.code.encode()) continue;
      int found = 0;
      MPI_Iprobe(peer, channel.data_tags().collective(call.sequence, code), channel.data(), &found, MPI_STATUS_IGNORE);
      if (found) return describe_calls(channel, call.describe(), peer, describe_call_code(code));
    }
  return "";
}

}  // namespace gantry
