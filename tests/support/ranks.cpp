#include "ranks.h"

#include <gtest/gtest.h>
#include <typeinfo>

#include "gantry/launch/backends.h"
#include "gantry/launch/launch.h"

namespace gantry::testing {

Config layout_config(const Layout& layout) {
  Config config;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.data = layout.data;
  config.parallel.tensor = layout.tensor;
  config.parallel.context = layout.context;
  config.parallel.expert = layout.expert;
  config.comm.timeout_seconds = 30;
  return config;
}

StartRanks& start_ranks() {
  static StartRanks start = launch;
  return start;
}

bool are_ranks_on_devices() { return start_ranks().target_type() != typeid(&launch); }

void run_ranks(const Layout& layout, const std::function<void(World&, ProcessGroupMesh&)>& body) {
  const int code = start_ranks()(layout_config(layout), [&](World& world) {
    ProcessGroupMesh mesh(world);
    body(world, mesh);
    mesh.world_group().barrier().wait();
  });
  ASSERT_EQ(code, 0) << "a rank failed; its error is above";
}

void run_ranks(int ranks, const std::function<void(World&, ProcessGroupMesh&)>& body) {
  run_ranks({.tensor = ranks}, body);
}

}  // namespace gantry::testing
