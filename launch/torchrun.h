// Copies of a program that torchrun (or a launcher that sets its variables) has started on one host. They
// form one job: the first copy runs the ranks as threads, and the others wait for it and end with its exit
// code.
#pragma once

#include <functional>
#include <optional>

namespace gantry {

struct TorchrunCopies {
  int count = 1;
  bool is_first = true;
};

// Reads RANK, WORLD_SIZE and LOCAL_WORLD_SIZE. Returns nullopt without these, for a single copy, and if the
// copies are on several hosts, because the threads of one process cannot be.
std::optional<TorchrunCopies> torchrun_copies();

// Runs `job` in the first copy only, and returns its exit code in every copy. Collective over the copies,
// which find each other within a minute by MASTER_PORT and TORCHELASTIC_RUN_ID. Throws UsageError if another
// job uses the same values, and PeerError if the first copy is not found or ended without an exit code.
int run_in_first_copy(const TorchrunCopies& copies, const std::function<int()>& job);

}  // namespace gantry
