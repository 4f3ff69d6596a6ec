// Tensors of a module of which the ranks of a group hold rows, and their memory while they are unsharded: they are
// gathered by one message and released together. The module's tensors stay the same objects: their memory comes and
// goes.
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
    torch::Tensor tensor;      // the module's own: holds this rank's rows, and then has the shape and memory of all
    Shape full;                // its shape then
    std::vector<Range> parts;  // of its flattened elements, by part
    Shape rows;                // the shape of this rank's; as the tensor has it where this is empty
  };

  // Of one type and device. `parts`: which part each rank of the group holds; the group is not owned. `name` and
  // `remedy`: what errors say of uses while the memory is away.
  ShardedUnit(std::vector<Member> members, ProcessGroup& group, std::vector<int> parts, const std::string& name,
              const std::string& remedy);

  const std::vector<Member>& members() const { return members_; }
  // This rank's rows of a member: a leaf of its own, that requires no gradient yet. All lie one after the other.
  const torch::Tensor& shard(std::size_t member) const { return shards_[member]; }
  // Over a member's whole memory, whether it is there or not.
  torch::Tensor over(std::size_t member) const { return memory_.over(offsets_[member], members_[member].full); }

  // Posts the gather, unless the unit is unsharded or on its way. Collective over the group.
  void start();
  // Afterwards it is unsharded. Starts what was not started.
  void wait();
  void release();
  bool is_full() const { return memory_.is_there(); }
  bool is_arriving() const { return arriving_.defined(); }

  // The rows lie elsewhere too, whence `fill` writes them: until keep_rows() their memory is there only while a gather
  // reads it. Not while the unit is on its way.
  void release_shard(std::function<void()> fill);
  void keep_rows();
  bool has_rows() const { return !fill_; }

 private:
  std::vector<Member> members_;
  ProcessGroup& group_;
  std::vector<int> parts_;
  std::vector<std::int64_t> offsets_;  // of members, in the memory
  std::vector<torch::Tensor> shards_;
  ReleasedMemory rows_;
  torch::Tensor own_;           // the members' rows, over that
  std::function<void()> fill_;  // set while the rows are given up
  Sizes sizes_;                 // of each rank of the group
  ReleasedMemory memory_;
  torch::Tensor arriving_;  // what every rank holds, rank by rank; undefined unless it is on its way
  Work work_;
};

}  // namespace gantry
