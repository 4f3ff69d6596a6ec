// Ranks as processes. Each group has two channels of a transport, and each job has one engine, which advances
// all pending operations whenever any of them is waited for or polled.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/wait_limits.h"
#include "gantry/comm/world.h"

namespace gantry {

class KnownFailures;
class ProcessEngine;
class Transport;

// Sizes at which the backend changes its methods; equal on all ranks.
struct ProcessLimits {
  // Longest message of a transport, because MPI counts in int. At least 4096.
  std::int64_t chunk_bytes = std::int64_t{1} << 30;
  // Largest all_reduce for which each rank gets the inputs of all ranks and adds them itself.
  std::int64_t direct_bytes = std::int64_t{32} << 10;
  // Largest group whose members exchange few bytes directly. The messages of larger groups are passed on in rounds, so
  // that a rank sends one or two per round and not one per member.
  int direct_ranks = 16;
  std::int64_t segment_bytes = std::int64_t{8} << 20;  // larger reductions are split, to stay in the cache
  std::int64_t slot_bytes = std::int64_t{128} << 10;   // largest piece of a rank in shared memory
};

class ProcessBackend final : public Backend {
 public:
  explicit ProcessBackend(std::shared_ptr<ProcessEngine> engine) : engine_(std::move(engine)) {}
  ~ProcessBackend() override;  // calls close() or, after a failure, drops all operations; ignores errors

  const char* name() const override;
  int rank() const override;
  int size() const override;
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override;
  bool has_ended(int rank) const override;
  const std::shared_ptr<ProcessEngine>& engine() const { return engine_; }  // for backends that use this one

  // Waits until every sent message has left. Throws PeerError at the deadline. Call it when the body has
  // ended.
  void close();

 private:
  std::shared_ptr<ProcessEngine> engine_;
};

// Collective over the job. `describe_rank` names world ranks in messages. `failures` is shared with the
// control plane.
std::unique_ptr<ProcessBackend> make_process_backend(std::unique_ptr<Transport> transport,
                                                     std::shared_ptr<KnownFailures> failures, const WaitLimits& waits,
                                                     std::function<std::string(int)> describe_rank,
                                                     ProcessLimits limits = {});

}  // namespace gantry
