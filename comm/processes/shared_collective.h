// A collective in the ring of its host. Across hosts, running sums are passed from host to host.
//
// Up to HostRing::kDepth rounds are in flight: while this rank waits for others, it fills the next round.
// Each element is reduced by one rank, in rank order, beginning with rank 0.
//
// An all_reduce across hosts: member j of each host owns slice j. The owner on the first host sends the sum
// over its host to the owner on the second host. The latter adds the terms of its host and sends the sum on.
// The sum on the last host is the result, which returns on the same path. So the order is the rank order,
// although every host adds its own terms. Running sums of half precisions are sent in float32.
#pragma once

#include <array>

#include "gantry/comm/processes/shared_rounds.h"

namespace gantry {

class SharedCollective final : public ProcessCollective {
 public:
  explicit SharedCollective(std::shared_ptr<GroupChannel> channel)
      : ProcessCollective(std::move(channel)), ring_(*channel_->ring()), rounds_(ring_, call_) {}

 protected:
  void prepare() override;  // joins the order of the ring
  bool advance() override;
  bool polled() const override { return true; }
  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override;

 private:
  // Requests in flight between hosts, of one round.
  struct Hop {
    int running_in = 0, running_out = 0, result_in = 0, result_out = 0;
  };

  std::vector<int> absent(const std::vector<int>& missing) const;
  void write_head();
  void check_heads();
  void check_head(int member);
  bool may_fill();
  bool may_drain() const;
  bool step();
  bool step_sums();

  // For an all_reduce over several hosts:
  bool owns_slice() const { return ring_.me() < static_cast<int>(call_.parts.size()); }
  Hop& hop(std::int64_t index) { return hops_[index % HostRing::kDepth]; }
  char* running(std::int64_t index) const { return channel_->running_sum(static_cast<int>(index % HostRing::kDepth)); }
  void expect_hops(std::int64_t index);
  bool step_hops();
  void extend_running(std::int64_t index);
  void pass_result(std::int64_t index);

  HostRing& ring_;
  SharedRounds rounds_;
  std::uint64_t turn_ = 0;
  bool checked_ = false;
  std::int64_t filled_ = 0, extended_ = 0, summed_ = 0, drained_ = 0;  // numbers of rounds
  std::array<Hop, HostRing::kDepth> hops_;
};

}  // namespace gantry
