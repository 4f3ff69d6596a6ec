// Collectives as data: phases of transfers, each phase ended by sums. Free of MPI; MessageCollective carries them out.
//
// Sums are taken by rank, 0 first, on one rank for each element, so the bits are those of the local backend. Every
// transfer has a counterpart of equal size at the peer, in the same order, zero-sized ones too: a mismatch shows as a
// wrong size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gantry/comm/mpi/buffer_pool.h"

namespace gantry {

struct Transfer {
  int peer;
  char* data;
  std::int64_t bytes;
};

struct Reduction {
  char* out;
  std::size_t first_input;  // of Plan::inputs, one a rank, by rank
  std::int64_t elements;
};

// Keeps its vectors' memory when it is made again.
class Plan {
 public:
  std::size_t phases() const { return ends_.size(); }
  std::span<const Transfer> receives(std::size_t phase) const { return part(receives_, phase, &End::receives); }
  std::span<const Transfer> sends(std::size_t phase) const { return part(sends_, phase, &End::sends); }
  // When all transfers of the phase are done.
  std::span<const Reduction> reductions(std::size_t phase) const { return part(reductions_, phase, &End::reductions); }
  const void* const* inputs(const Reduction& sum) const { return inputs_.data() + sum.first_input; }

  // Building: all that is added belongs to the phase that end_phase() ends.
  void clear();
  void receive(const Transfer& transfer) { receives_.push_back(transfer); }
  void send(const Transfer& transfer) { sends_.push_back(transfer); }
  void begin_sum(char* out, std::int64_t elements) { reductions_.push_back({out, inputs_.size(), elements}); }
  void add_input(const void* input) { inputs_.push_back(input); }
  void end_phase() { ends_.push_back({receives_.size(), sends_.size(), reductions_.size()}); }
  char* take_scratch(std::int64_t bytes);
  // Where the parts begin, and behind the last one. Valid until the next call with the same `which`, 0 or 1.
  const std::vector<std::int64_t>& offsets_of(const std::vector<std::int64_t>& lengths, int which = 0);

 private:
  struct End {
    std::size_t receives, sends, reductions;
  };
  template <class T>
  std::span<const T> part(const std::vector<T>& all, std::size_t phase, std::size_t End::*end) const {
    const std::size_t begin = phase == 0 ? 0 : ends_[phase - 1].*end;
    return {all.data() + begin, ends_[phase].*end - begin};
  }

  std::vector<Transfer> receives_, sends_;
  std::vector<Reduction> reductions_;
  std::vector<const void*> inputs_;
  std::vector<End> ends_;  // of phases
  std::vector<std::int64_t> offsets_[2];
  PooledMemory scratch_;
};

// Who plans, and how far small ways reach.
struct Member {
  int rank;
  int size;
  std::int64_t direct_bytes;
  std::int64_t segment_bytes;
};

// All fill a plan that was cleared. Data are of `item` bytes an element; `elements` and the like are by rank.

// In place. Small: everyone gets everything. Large: each rank sums a slice and passes the sum on, in segments: while
// one is summed the sums of the one before travel. `slices` is room for the slices' sizes.
void plan_all_reduce(Plan& plan, const Member& me, char* data, std::int64_t elements, std::int64_t item,
                     std::vector<std::int64_t>& slices);
// Slice r of `in` has elements[r]; `out` gets this rank's sum.
void plan_reduce_scatter(Plan& plan, const Member& me, char* out, char* in, const std::vector<std::int64_t>& elements,
                         std::int64_t item);
// `out` has elements[r] from each rank, in order; this rank's own are copied by the planning.
void plan_all_gather(Plan& plan, const Member& me, char* out, char* in, const std::vector<std::int64_t>& elements,
                     std::int64_t item);
void plan_all_to_all(Plan& plan, const Member& me, char* out, char* in, const std::vector<std::int64_t>& out_elements,
                     const std::vector<std::int64_t>& in_elements, std::int64_t item);
// Down a binomial tree, in segments.
void plan_broadcast(Plan& plan, const Member& me, char* data, std::int64_t bytes, int root);
// By dissemination: in round k rank r tells r + 2^k.
void plan_barrier(Plan& plan, const Member& me);

}  // namespace gantry
