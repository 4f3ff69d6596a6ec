// The limit of open files of a launch, which has sockets and logs of every rank.
#pragma once

namespace gantry::launcher {

// Raises the limit of this process for a job of `ranks` ranks with `per_rank` files each. ResourceError where it
// may not be raised so far.
void allow_open_files(int ranks, int per_rank);

}  // namespace gantry::launcher
