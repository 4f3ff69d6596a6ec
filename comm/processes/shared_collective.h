// A collective that meets in the ring of its host, and across hosts passes running sums from host to host.
//
// Up to HostRing::kDepth rounds are under way: while others are waited for, the next is filled. Elements are summed by
// rank, 0 first, on one rank each.
//
// Across hosts, for all_reduce: each host's j-th member owns slice j. The first host's sends the sum over its host to
// the second's, who adds its host's and sends on; the last one's is the result, which goes back the same way. So the
// order is by rank although every host sums its own. Running sums of half precisions travel in float32.
#pragma once

#include <array>

#include "gantry/comm/processes/shared_rounds.h"

namespace gantry {

class SharedCollective final : public ProcessCollective {
 public:
  explicit SharedCollective(std::shared_ptr<GroupChannel> channel)
      : ProcessCollective(std::move(channel)), ring_(*channel_->ring()), rounds_(ring_, call_) {}

 protected:
  void prepare() override;  // joins the ring's order
  bool advance() override;
  bool polled() const override { return true; }
  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override;

 private:
  // Requests of a round under way between hosts.
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

  // Between hosts.
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
  std::int64_t filled_ = 0, extended_ = 0, summed_ = 0, drained_ = 0;  // rounds
  std::array<Hop, HostRing::kDepth> hops_;
};

}  // namespace gantry
