// A collective that meets in the ring of its host, and across hosts passes running sums from host to host.
//
// Cut into rounds. In each, a member copies to its slot what others need (fill), sums its slice from all slots (sum,
// all_reduce alone), and takes what is for it from others' slots (drain). Up to HostRing::kDepth rounds are under way:
// while others are waited for, the next is filled. Elements are summed by rank, 0 first, on one rank each.
//
// Across hosts, for all_reduce: each host's j-th member owns slice j. The first host's sends the sum over its host to
// the second's, who adds its host's and sends on; the last one's is the result, which goes back the same way. So the
// order is by rank although every host sums its own. Running sums of half precisions travel in float32.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gantry/comm/mpi/call_mismatch.h"
#include "gantry/comm/mpi/collective_call.h"
#include "gantry/comm/mpi/host_ring.h"
#include "gantry/comm/mpi/mpi_channel.h"

namespace gantry {

class SharedCollective final : public MpiOperation {
 public:
  explicit SharedCollective(std::shared_ptr<MpiChannel> channel);

  // Fill it before begin().
  CollectiveCall& call() { return call_; }
  // Joins the ring's order. May be called again once the former collective is over and nobody holds it.
  void begin();
  bool idle() const { return !begun_ || finished(); }

 protected:
  bool advance() override;
  bool polled() const override { return true; }
  void finish() override { call_.give_result(); }
  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override;
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override;
  std::string find_mismatch(const std::vector<int>& missing) override {
    return find_other_call(*channel_, call_, missing);
  }

 private:
  struct Range {
    std::int64_t begin, end;  // elements
    std::int64_t size() const { return end - begin; }
  };
  // This rank's piece of its slice in a round: where it lies in the tensor and in slots, in bytes.
  struct Slice {
    std::int64_t elements, offset, at;
  };
  // Requests of a round under way between hosts.
  struct Hop {
    int running_in = 0, running_out = 0, result_in = 0, result_out = 0;
  };

  std::uint64_t round(std::int64_t index) const { return first_round_ + static_cast<std::uint64_t>(index); }
  char* slot(int member, std::int64_t index) const { return ring_.slot(member, round(index)); }
  bool sums_slices() const { return call_.code.kind == OperationKind::kAllReduce && !whole_; }

  void cut();
  std::vector<int> absent(const std::vector<int>& missing) const;
  void write_head();
  void check_heads();
  bool may_fill();
  bool may_drain() const;

  // shared_rounds.cpp: pieces end at cache lines; a slot that has a piece of each part has them in order.
  Range piece(std::int64_t elements, std::int64_t index, std::int64_t rounds) const;
  std::int64_t place(const std::int64_t* elements, int part, std::int64_t index, std::int64_t rounds) const;
  Slice slice(std::int64_t index) const;
  void fill(std::int64_t index);
  void fill_pieces(std::int64_t index, std::int64_t rounds, int left_out);
  void fill_piece(std::int64_t index, std::int64_t elements);
  bool step_sums();
  void sum_part(std::int64_t index, char* out, char* copied_to);
  void sum_slice(std::int64_t index);
  void sum_whole(std::int64_t index);
  void drain(std::int64_t index);
  void drain_sums(std::int64_t index);
  void drain_exchange(std::int64_t index);

  // host_hops.cpp
  bool owns_slice() const { return ring_.me() < static_cast<int>(call_.parts.size()); }
  Hop& hop(std::int64_t index) { return hops_[index % HostRing::kDepth]; }
  char* running(std::int64_t index) const { return channel_->running_sum(static_cast<int>(index % HostRing::kDepth)); }
  void expect_hops(std::int64_t index);
  bool step_hops();
  void extend_running(std::int64_t index);
  void pass_result(std::int64_t index);

  std::shared_ptr<MpiChannel> channel_;
  HostRing& ring_;
  CollectiveCall call_;
  bool begun_ = false, checked_ = false;
  bool whole_ = false;  // an all_reduce that every member sums for itself
  int tag_ = 0;
  std::uint64_t turn_ = 0, first_round_ = 0;
  std::int64_t rounds_ = 0, my_rounds_ = 0;                            // they differ in all_to_all alone
  std::int64_t filled_ = 0, extended_ = 0, summed_ = 0, drained_ = 0;  // rounds
  std::vector<std::int64_t> offsets_;                                  // of the parts, in elements
  std::vector<std::int64_t> peer_rounds_, peer_parts_;  // of all_to_all: peer_parts_[from * members + to]
  std::vector<const void*> inputs_;
  std::array<Hop, HostRing::kDepth> hops_;
};

}  // namespace gantry
