// Tells the first of several processes apart, before the ranks are connected.
#pragma once

namespace gantry {

// Returns false if a launcher (mpirun, Slurm, torchrun) has started this process with a rank above 0.
bool is_first_process();

}  // namespace gantry
