// Ranks as threads of one process. A tensor that is handed over becomes the receiver's without a copy; collectives read
// the peers' memory.
#pragma once

#include <map>
#include <memory>

#include "gantry/comm/local/local_job.h"
#include "gantry/comm/world.h"

namespace gantry {

class LocalBackend final : public Backend {
 public:
  LocalBackend(LocalJob& job, int rank) : job_(job), rank_(rank) {}

  const char* name() const override { return "local"; }
  int rank() const override { return rank_; }
  int size() const override { return job_.ranks(); }
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override;
  bool has_ended(int rank) const override;

 private:
  LocalJob& job_;
  int rank_;
  std::map<std::vector<int>, int> made_;  // how many groups of these ranks this rank has made
};

}  // namespace gantry
