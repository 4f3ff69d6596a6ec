// The open file limit of a launch, which has sockets and logs for every rank.
#pragma once

namespace gantry::launcher {

// Raises the limit of this process for a job of `ranks` ranks with `per_rank` files each. Throws
// ResourceError if the limit cannot be raised that far.
void allow_open_files(int ranks, int per_rank);

}  // namespace gantry::launcher
