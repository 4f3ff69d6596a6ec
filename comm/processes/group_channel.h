// The channels of one group: one for the heads of messages, with the caller's tags, and one for all other
// data. Also the shared memory of its members on this host.
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

// The place of this rank's host among the hosts of the group.
struct HostPlace {
  std::vector<int> members;  // ranks of the group on this host, ascending
  bool alone = true;         // all ranks of the group are on this host
  int slice_owners = 1;      // members per host with a slice of an all_reduce: the size of the smallest host
  // Owners of this rank's slice on the neighbouring hosts, with lower and with higher ranks; -1 if there is
  // none.
  int previous = -1, next = -1;
};

class GroupChannel {
 public:
  // Collective over `ranks` (world ranks), with the engine's deadline.
  GroupChannel(std::shared_ptr<ProcessEngine> engine, std::string label, std::vector<int> ranks);
  // Closes the channels unless something has failed, because closing may wait for peers that have ended.
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

  // Null if sharing memory has no advantage: every host has one member, or hosts do not hold contiguous
  // ranks.
  HostRing* ring() const { return ring_.get(); }
  const HostPlace& host_place() const { return place_; }
  void wake_host() { engine_->hosts().ring(neighbours_); }
  // For an all_reduce over several hosts: memory for the running sum of a round, one of HostRing::kDepth.
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
  const std::string waited_;  // error text if a member does not arrive
  std::unique_ptr<Transport::Channel> heads_, data_;
  HostPlace place_;
  bool worth_sharing_ = false;
  std::vector<int> neighbours_;  // places of place_.members on the host
  std::unique_ptr<HostRing> ring_;
  PooledMemory running_;
  std::int64_t running_bytes_ = 0;
};

// Returns a rank's endpoint to the group (message_group.cpp).
std::unique_ptr<ProcessGroup> make_message_group(std::shared_ptr<GroupChannel> channel);

}  // namespace gantry
