// Copies of a program that torchrun, or a launcher that sets its variables, has started on one host are one job: the
// first runs the ranks as threads, and the others wait for it and end as it does.
#pragma once

#include <functional>
#include <optional>

namespace gantry {

struct TorchrunCopies {
  int count = 1;
  bool is_first = true;
};

// By RANK, WORLD_SIZE and LOCAL_WORLD_SIZE. None without these, for one copy alone, and where the copies are spread
// over several hosts, which threads of one process can't be.
std::optional<TorchrunCopies> torchrun_copies();

// Runs `job` in the first copy alone, and gives its exit code in every one. Collective over the copies, which find each
// other within a minute by MASTER_PORT and TORCHELASTIC_RUN_ID. UsageError where another job has these; PeerError where
// the first copy is not found, or ended without a word.
int run_in_first_copy(const TorchrunCopies& copies, const std::function<int()>& job);

}  // namespace gantry
