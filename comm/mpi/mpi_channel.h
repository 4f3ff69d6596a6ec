// The communicators of one group: one for the heads of messages, whose tags are the caller's, one for all other data.
#pragma once

#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

#include "gantry/comm/mpi/mpi_engine.h"
#include "gantry/comm/mpi/mpi_tags.h"

namespace gantry {

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
  std::string describe_members(const std::vector<int>& ranks) const;  // "rank 1 (...), rank 3 (...)"

  const TagLayout& tags() const { return tags_; }
  const DataTags& data_tags() const { return data_tags_; }
  MPI_Comm heads() const { return heads_; }
  MPI_Comm data() const { return data_; }

 private:
  std::shared_ptr<MpiEngine> engine_;
  std::string label_;
  std::vector<int> ranks_;
  int rank_ = 0;
  TagLayout tags_;
  DataTags data_tags_;
  MPI_Comm heads_ = MPI_COMM_NULL, data_ = MPI_COMM_NULL;
};

}  // namespace gantry
