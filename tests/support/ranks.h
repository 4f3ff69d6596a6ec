// Runs a test body on several ranks: threads by default, the ranks of the MPI job under mpirun.
#pragma once

#include <algorithm>
#include <functional>

#include "gantry/comm/process_group_mesh.h"
#include "grid.h"

namespace gantry::testing {

struct Layout {
  int pipeline = 1;
  int data = 1;
  int tensor = 1;
  int context = 1;
  int expert = 1;  // over ranks of the other axes
  int ranks() const { return pipeline * data * tensor * context; }
};

// The configuration of a layout, with a timeout of 30 s per wait.
Config layout_config(const Layout& layout);

// Starts the configuration's ranks and returns the exit code. This is launch(), unless the program has set
// another function before main to put its ranks on devices (support/device_ranks).
using StartRanks = std::function<int(const Config& config, const std::function<void(World&)>& body)>;
StartRanks& start_ranks();

// True if this program puts its ranks on pretended devices (support/start_on_devices).
bool are_ranks_on_devices();

// The layouts of a list that a test runs. These are all of them, but on devices a sixth unless GANTRY_LONG=1.
template <class T>
std::vector<T> layouts_to_run(const std::vector<T>& layouts) {
  if (!are_ranks_on_devices()) return layouts;
  return turn_of(next_turn("layouts to run"), std::min<std::size_t>(6, layouts.size()), layouts);
}

// Runs `body` on every rank of the layout, with a timeout of 30 s per wait. An exception on any rank, or a
// gtest failure, fails the calling test with the first cause. Under mpirun the layout can have fewer ranks
// than the job; the other ranks are idle.
void run_ranks(const Layout& layout, const std::function<void(World&, ProcessGroupMesh&)>& body);
void run_ranks(int ranks, const std::function<void(World&, ProcessGroupMesh&)>& body);  // along tp

}  // namespace gantry::testing
