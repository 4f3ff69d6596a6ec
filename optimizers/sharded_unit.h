// Tensors of a module whose rows are sharded over the ranks of a group, and their memory while they are
// unsharded. They are gathered by one message and released together. The module's tensors remain the same
// objects; only their memory is allocated and released.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/slice.h"
#include "gantry/tensors/released_memory.h"

namespace gantry {

class ShardedUnit {
 public:
  struct Member {
    torch::Tensor tensor;      // the module's tensor: first this rank's rows, then the full shape and memory
    Shape full;                // the full shape
    std::vector<Range> parts;  // ranges of its flattened elements, by part
    Shape rows;                // shape of this rank's rows; empty: the shape of `tensor`
  };

  // All members have one type and device. `parts`: the part of each rank of the group. The group is not
  // owned. `name` and `remedy` are for errors about uses while the memory is released.
  ShardedUnit(std::vector<Member> members, ProcessGroup& group, std::vector<int> parts, const std::string& name,
              const std::string& remedy);

  const std::vector<Member>& members() const { return members_; }
  // This rank's rows of a member: a separate leaf, which does not require a gradient yet. The rows of all
  // members are contiguous.
  const torch::Tensor& shard(std::size_t member) const { return shards_[member]; }
  // A tensor on the full memory of a member, whether it is allocated or not.
  torch::Tensor over(std::size_t member) const { return memory_.over(offsets_[member], members_[member].full); }

  // Posts the gather, unless the unit is unsharded or its gather is in flight. Collective over the group.
  void start();
  // Waits until the unit is unsharded. Posts the gather if start() was not called.
  void wait();
  void release();
  bool is_full() const { return memory_.is_there(); }
  bool is_arriving() const { return arriving_.defined(); }

  // For rows that are stored elsewhere too, from where `fill` writes them: until keep_rows() their memory
  // exists only while a gather reads it. Not allowed while the gather is in flight.
  void release_shard(std::function<void()> fill);
  void keep_rows();
  bool has_rows() const { return !fill_; }

 private:
  std::vector<Member> members_;
  ProcessGroup& group_;
  std::vector<int> parts_;
  std::vector<std::int64_t> offsets_;  // offsets of members in `memory_`
  std::vector<torch::Tensor> shards_;
  ReleasedMemory rows_;
  torch::Tensor own_;           // the rows of all members, in `rows_`
  std::function<void()> fill_;  // set while the rows are released
  Sizes sizes_;                 // by rank of the group
  ReleasedMemory memory_;
  torch::Tensor arriving_;  // the rows of every rank, in rank order; undefined unless a gather is in flight
  Work work_;
};

}  // namespace gantry
