// A collective that uses messages between ranks: between hosts, and if ranks share no memory.
//
// The call plans it as phases of transfers; each phase ends with reductions. For each element one rank
// reduces in rank order, beginning with rank 0, so the results are bitwise identical to the local backend.
// Every transfer has a counterpart of equal size at the peer, in the same order, including transfers of zero
// bytes. A mismatch of the calls is therefore detected as a wrong size.
#pragma once

#include "gantry/comm/processes/process_collective.h"

namespace gantry {

class MessageCollective final : public ProcessCollective {
 public:
  using ProcessCollective::ProcessCollective;

 protected:
  void prepare() override;
  bool advance() override;
  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override { return channel_->world_ranks(missing); }

 private:
  struct Transfer {
    int peer;
    char* data;
    std::int64_t bytes;
  };
  struct Sum {
    char* out;
    std::size_t first_input;  // index in inputs_, which has one entry per rank, in rank order
    std::int64_t elements;
  };
  struct Phase {  // index after its last transfer of each kind
    std::size_t receives, sends, sums;
  };
  struct Range {
    std::int64_t begin, end;  // elements
    std::int64_t size() const { return end - begin; }
  };

  void plan_all_reduce();
  void plan_small_all_reduce();
  void plan_doubling_all_reduce();
  void plan_doubling_all_gather();
  void plan_reduce_scatter();
  void plan_exchange(const std::vector<std::int64_t>& in_parts, const std::vector<std::int64_t>& out_parts);
  void plan_broadcast();
  void plan_barrier();
  bool passes_on(std::int64_t bytes);
  void clear_plan();
  void split_slices();
  Range piece(int rank, std::int64_t segment) const;
  void add_scatter(std::int64_t segment, char* out);
  void add_gather(std::int64_t segment);
  void take_scratch(std::int64_t bytes) { scratch_ = BufferPool::instance().take(static_cast<std::size_t>(bytes)); }
  void begin_sum(char* out, std::int64_t elements) { sums_.push_back({out, inputs_.size(), elements}); }
  void end_phase() { phases_.push_back({receives_.size(), sends_.size(), sums_.size()}); }

  std::vector<Transfer> receives_, sends_;
  std::vector<Sum> sums_;
  std::vector<const void*> inputs_;
  std::vector<Phase> phases_;
  std::size_t next_ = 0;                        // number of the next phase
  PooledMemory scratch_;                        // memory for the terms of a reduction
  std::vector<std::int64_t> slices_, offsets_;  // in a reduction: elements per rank; see segments_
  std::int64_t segments_ = 1;                   // number of parts of each slice
};

}  // namespace gantry
