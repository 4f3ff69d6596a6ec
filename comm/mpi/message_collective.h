// A collective of messages from rank to rank, by its plan: between hosts, and wherever ranks have no memory in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/mpi/collective_call.h"
#include "gantry/comm/mpi/collective_plans.h"
#include "gantry/comm/mpi/mpi_channel.h"

namespace gantry {

class MessageCollective final : public MpiOperation {
 public:
  explicit MessageCollective(std::shared_ptr<MpiChannel> channel)
      : MpiOperation(channel->engine()), channel_(std::move(channel)) {}

  // Fill it before begin().
  CollectiveCall& call() { return call_; }
  // Plans it. May be called again once the former collective is over and nobody holds it.
  void begin();
  bool idle() const { return !begun_ || finished(); }

 protected:
  bool advance() override;
  void finish() override { call_.give_result(); }
  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override;
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override;
  std::string find_mismatch(const std::vector<int>& missing) override;

 private:
  void plan();

  std::shared_ptr<MpiChannel> channel_;
  CollectiveCall call_;
  Plan plan_;
  std::vector<std::int64_t> slices_;  // the plan's room
  bool begun_ = false;
  int tag_ = 0;
  std::size_t next_ = 0;  // phase
};

}  // namespace gantry
