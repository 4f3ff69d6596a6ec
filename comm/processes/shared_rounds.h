// The rounds of a collective in a host's ring: the copies and reductions of each round.
//
// A member does three things in a round. It copies the data that other members need to its slot (fill). In an
// all_reduce it reduces its slice of all slots (sum_slice). It copies its own data from the other slots
// (drain). Pieces end at cache lines. A slot with a piece of each part contains the pieces in order.
#pragma once

#include <vector>

#include "gantry/comm/processes/host_memory.h"
#include "gantry/comm/processes/process_collective.h"

namespace gantry {

class SharedRounds {
 public:
  // This rank's piece of its slice in a round: its position in the tensor (`offset`) and in the slots (`at`),
  // in bytes.
  struct Slice {
    std::int64_t elements, offset, at;
  };

  // Both must outlive this object.
  SharedRounds(HostRing& ring, CollectiveCall& call) : ring_(ring), call_(call) { inputs_.resize(ring.members()); }

  // Prepares for the current call. An all_reduce is split into one slice for each of `place.slice_owners`
  // members of the host. If it has at most `direct_bytes` and there is only one host, every member reduces
  // the full tensor instead.
  void split(const HostPlace& place, std::int64_t direct_bytes);
  void begin(std::uint64_t first_round) { first_round_ = first_round; }

  std::int64_t count() const { return rounds_; }
  std::int64_t own_count() const { return own_rounds_; }  // differs from count() only in all_to_all
  std::uint64_t round(std::int64_t index) const { return first_round_ + static_cast<std::uint64_t>(index); }
  char* slot(int member, std::int64_t index) const { return ring_.slot(member, round(index)); }
  bool sums_slices() const { return call_.code.kind == OperationKind::kAllReduce && !sums_full_; }
  Slice slice(std::int64_t index) const;
  const void* const* inputs_of_slice(std::int64_t index);  // by member

  // Only for all_to_all, called for each member in order: its number of rounds, and the bytes that it sends
  // to each member.
  void forget_peers();
  void learn_peer(std::int64_t rounds, const std::int64_t* sent);

  void fill(std::int64_t index);
  // Writes to this rank's tensor and its slot.
  void sum_slice(std::int64_t index);
  void drain(std::int64_t index);

 private:
  struct Range {
    std::int64_t begin, end;  // elements
    std::int64_t size() const { return end - begin; }
  };

  Range piece(std::int64_t elements, std::int64_t index, std::int64_t rounds) const;
  std::int64_t place_of(const std::int64_t* elements, int part, std::int64_t index, std::int64_t rounds) const;
  void fill_pieces(std::int64_t index);
  void fill_piece(std::int64_t index, std::int64_t elements);
  void sum_part(std::int64_t index, char* out, char* copied_to);
  void sum_full(std::int64_t index);
  void drain_sums(std::int64_t index);
  void drain_gathered(std::int64_t index);
  void drain_exchange(std::int64_t index);

  HostRing& ring_;
  CollectiveCall& call_;
  bool sums_full_ = false;  // an all_reduce in which every member reduces the full tensor
  std::uint64_t first_round_ = 0;
  std::int64_t rounds_ = 0, own_rounds_ = 0;
  std::vector<std::int64_t> offsets_;                   // start of each part, in elements
  std::vector<std::int64_t> peer_rounds_, peer_parts_;  // in all_to_all: peer_parts_[from * members + to]
  std::vector<const void*> inputs_;
};

}  // namespace gantry
