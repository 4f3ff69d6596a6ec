// The channels of one group: one for the heads of messages, whose tags are the caller's, one for all other data;
// and the shared memory of its members on this host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/comm/processes/host_memory.h"
#include "gantry/comm/processes/message_tags.h"
#include "gantry/comm/processes/process_engine.h"
#include "gantry/comm/processes/roll_call.h"
#include "gantry/tensors/buffer_pool.h"

namespace gantry {

// Where this rank's host stands among the group's.
struct HostPlace {
  std::vector<int> members;      // ranks of the group on this host, ascending
  bool alone = true;             // all of the group's ranks are here
  int slice_owners = 1;          // members that own a slice of an all_reduce: the fewest that a host has
  int previous = -1, next = -1;  // on the hosts of lower and higher ranks, who owns the slice that this rank owns
};

class GroupChannel {
 public:
  // Collective over `ranks` (world ranks), within the engine's deadline.
  GroupChannel(std::shared_ptr<ProcessEngine> engine, std::string label, std::vector<int> ranks);
  // Closes the channels unless something has failed: closing may wait for peers that are no more.
  ~GroupChannel();
  GroupChannel(const GroupChannel&) = delete;
  GroupChannel& operator=(const GroupChannel&) = delete;

  const std::shared_ptr<ProcessEngine>& engine() const { return engine_; }
  const std::string& label() const { return label_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  std::string describe_member(int rank) const { return engine_->describe_rank(ranks_[rank]); }
  std::vector<int> world_ranks(std::vector<int> members) const;
  std::string describe_members(const std::vector<int>& ranks) const;  // "rank 1 (...), rank 3 (...)"

  const TagLayout& tags() const { return tags_; }
  const DataTags& data_tags() const { return data_tags_; }
  Transport::Channel& heads() const { return *heads_; }
  Transport::Channel& data() const { return *data_; }

  // Null where there is none to gain: a host has one member, or hosts don't hold contiguous ranks.
  HostRing* ring() const { return ring_.get(); }
  const HostPlace& host_place() const { return place_; }
  void wake_host() { engine_->hosts().ring(neighbours_); }
  // Of all_reduces over several hosts: memory for the running sum of a round, HostRing::kDepth of them.
  char* running_sum(int index) const { return running_.get() + index * running_bytes_; }

 private:
  std::vector<RollWord> call_roll(const RollWord& mine);
  [[noreturn]] void end_roll(const RollCall& roll, const std::vector<int>& missing, int ended);
  void find_hosts();
  std::size_t ring_bytes() const;
  void make_ring(const HostMemory::Address& address);

  std::shared_ptr<ProcessEngine> engine_;
  std::string label_;
  std::vector<int> ranks_;
  int rank_ = 0;
  TagLayout tags_;
  DataTags data_tags_;
  const std::string waited_;  // for a member that does not come
  std::unique_ptr<Transport::Channel> heads_, data_;
  HostPlace place_;
  bool worth_sharing_ = false;
  std::vector<int> neighbours_;  // places of place_.members on the host
  std::unique_ptr<HostRing> ring_;
  PooledMemory running_;
  std::int64_t running_bytes_ = 0;
};

// A rank's endpoint to the group (mpi_group.cpp).
std::unique_ptr<ProcessGroup> make_message_group(std::shared_ptr<GroupChannel> channel);

}  // namespace gantry
