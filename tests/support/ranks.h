// Runs a test body on several ranks: threads by default, or the ranks of this MPI job under mpirun.
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
  int expert = 1;  // among those
  int ranks() const { return pipeline * data * tensor * context; }
};

// The configuration of that layout, with a deadline of 30 s a wait.
Config layout_config(const Layout& layout);

// Starts the configuration's ranks and gives the exit code: launch(), or what a program that puts them on devices has
// set before main (support/device_ranks).
using StartRanks = std::function<int(const Config& config, const std::function<void(World&)>& body)>;
StartRanks& start_ranks();

// True if this program puts its ranks on pretended devices (support/start_on_devices).
bool are_ranks_on_devices();

// The part of a list of layouts that a test runs: all of them, and on devices a sixth in turn unless GANTRY_LONG=1.
template <class T>
std::vector<T> layouts_to_run(const std::vector<T>& layouts) {
  if (!are_ranks_on_devices()) return layouts;
  return turn_of(next_turn("layouts to run"), std::min<std::size_t>(6, layouts.size()), layouts);
}

// Runs `body` on every rank of the layout with a deadline (30 s a wait). An exception on any rank, or a gtest failure,
// fails the calling test with the first cause. Under mpirun the layout's ranks must be at most the job's; the rest
// stand by.
void run_ranks(const Layout& layout, const std::function<void(World&, ProcessGroupMesh&)>& body);
void run_ranks(int ranks, const std::function<void(World&, ProcessGroupMesh&)>& body);  // along tp

}  // namespace gantry::testing
