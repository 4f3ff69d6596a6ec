// Who of a group's members is missing: MPI's own collective set-up calls can't be asked that.
#pragma once

#include <vector>

namespace gantry {

// Each member tells the first one that it is there, and goes on when that one answers that all are. Gives the members,
// world ranks, that were missing after `seconds`: on the first member those that have not come, on the others the first
// one, a second later (had it been there, it would have ended the job). Empty when all came. Collective over `ranks`.
std::vector<int> roll_call(const std::vector<int>& ranks, int rank, double seconds);

}  // namespace gantry
