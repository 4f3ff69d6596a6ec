// A message in flight from a member to this one: descriptions of the wait and of errors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/processes/group_channel.h"
#include "gantry/comm/processes/process_operation.h"

namespace gantry {

class MessageReceive : public ProcessOperation {
 protected:
  MessageReceive(std::shared_ptr<GroupChannel> channel, int from, const Tag& tag);

  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override;
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override;

  const std::shared_ptr<GroupChannel> channel_;
  const int from_;
  const Tag tag_;
  const int wire_tag_;
};

}  // namespace gantry
