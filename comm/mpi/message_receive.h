// A message in flight from a member to this one: descriptions of a wait for it, and of its faults.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/mpi/mpi_channel.h"
#include "gantry/comm/mpi/mpi_operation.h"

namespace gantry {

class MessageReceive : public MpiOperation {
 protected:
  MessageReceive(std::shared_ptr<MpiChannel> channel, int from, const Tag& tag);

  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override;
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override;

  const std::shared_ptr<MpiChannel> channel_;
  const int from_;
  const Tag tag_;
  const int wire_tag_;
};

}  // namespace gantry
