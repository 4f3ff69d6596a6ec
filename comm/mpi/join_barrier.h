// Who of a group's members is missing: MPI's own collective set-up calls can't be asked that.
#pragma once

#include <functional>
#include <vector>

namespace gantry {

struct BarrierEnd {
  std::vector<int> missing;  // world ranks that have not come; empty when all have
  bool first_waits = false;  // the first member has come, and waits for others that this one does not know
  int ended = -1;            // one of the missing that has ended its work: there was no need to wait longer
};

// Each member tells the first one that it is there, who answers at once that it is there too, and again when all are.
// After `seconds` the first member names those that have not come, and the others the first one, unless it has answered
// once: then they wait until it must have named someone. `find_ended` gives one of some ranks that has ended its work,
// -1 without. Collective over `ranks`.
BarrierEnd join_barrier(const std::vector<int>& ranks, int rank, double seconds,
                        const std::function<int(const std::vector<int>&)>& find_ended);

}  // namespace gantry
