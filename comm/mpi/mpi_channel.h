// The communicators of one group: one for the heads of messages, whose tags are the caller's, one for all other data;
// and the shared memory of its members on this host.
#pragma once

#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

#include "gantry/comm/mpi/host_memory.h"
#include "gantry/comm/mpi/mpi_engine.h"
#include "gantry/comm/mpi/mpi_tags.h"
#include "gantry/comm/process_group.h"
#include "gantry/tensors/buffer_pool.h"

namespace gantry {

// Where this rank's host stands among the group's.
struct HostPlace {
  std::vector<int> members;      // ranks of the group on this host, ascending
  bool alone = true;             // all of the group's ranks are here
  int slice_owners = 1;          // members that own a slice of an all_reduce: the fewest that a host has
  int previous = -1, next = -1;  // on the hosts of lower and higher ranks, who owns the slice that this rank owns
};

class MpiChannel {
 public:
  // Collective over `ranks` (world ranks), within the engine's deadline.
  MpiChannel(std::shared_ptr<MpiEngine> engine, std::string label, std::vector<int> ranks);
  // Frees the communicators unless something has failed: freeing may wait for peers that are no more.
  ~MpiChannel();
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;

  const std::shared_ptr<MpiEngine>& engine() const { return engine_; }
  const std::string& label() const { return label_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  std::string describe_member(int rank) const { return engine_->describe_rank(ranks_[rank]); }
  std::vector<int> world_ranks(std::vector<int> members) const;
  std::string describe_members(const std::vector<int>& ranks) const;  // "rank 1 (...), rank 3 (...)"

  const TagLayout& tags() const { return tags_; }
  const DataTags& data_tags() const { return data_tags_; }
  MPI_Comm heads() const { return heads_; }
  MPI_Comm data() const { return data_; }

  // Null where there is none to gain: a host has one member, or hosts don't hold contiguous ranks.
  HostRing* ring() const { return ring_.get(); }
  const HostPlace& host_place() const { return place_; }
  void wake_host() { engine_->hosts().ring(neighbours_); }
  // Of all_reduces over several hosts: memory for the running sum of a round, HostRing::kDepth of them.
  char* running_sum(int index) const { return running_.get() + index * running_bytes_; }

 private:
  void barrier_with_names(const std::string& waited);
  void find_hosts();
  void make_ring();

  std::shared_ptr<MpiEngine> engine_;
  std::string label_;
  std::vector<int> ranks_;
  int rank_ = 0;
  TagLayout tags_;
  DataTags data_tags_;
  MPI_Comm heads_ = MPI_COMM_NULL, data_ = MPI_COMM_NULL;
  HostPlace place_;
  bool worth_sharing_ = false;
  std::vector<int> neighbours_;  // places of place_.members on the host
  std::unique_ptr<HostRing> ring_;
  PooledMemory running_;
  std::int64_t running_bytes_ = 0;
};

// A rank's endpoint to the group (mpi_group.cpp).
std::unique_ptr<ProcessGroup> make_mpi_group(std::shared_ptr<MpiChannel> channel);

}  // namespace gantry
