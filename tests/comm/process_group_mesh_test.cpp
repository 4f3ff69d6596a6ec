#include "gantry/comm/process_group_mesh.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

#include "gantry/core/error.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

TEST(Acceptance, D1ProcessGroupMeshHasAGroupForEveryAxisAndSet) {
  run_ranks({.pipeline = 2, .data = 3, .tensor = 2}, [](World& world, ProcessGroupMesh& mesh) {
    for (const std::vector<std::string>& axes : {std::vector<std::string>{"pp"},
                                                 {"dp"},
                                                 {"tp"},
                                                 {"dp", "pp"},
                                                 {"tp", "pp"},
                                                 {"tp", "dp"},
                                                 {"pp", "dp", "tp"}}) {
      ProcessGroup& group = mesh.group(axes);
      const auto ranks = mesh.mesh().ranks_along(world.rank(), axes);
      ASSERT_EQ(group.size(), static_cast<int>(ranks.size()));
      EXPECT_EQ(ranks[group.rank()], world.rank());
      double sum = 0;
      for (const int rank : ranks) sum += rank;
      EXPECT_EQ(all_reduce_number(group, world.rank()), sum);
    }
    EXPECT_EQ(mesh["tp"].rank(), mesh.coordinate("tp"));
    const std::map<std::string, int> here{
        {"pp", mesh.coordinate("pp")}, {"dp", mesh.coordinate("dp")}, {"tp", mesh.coordinate("tp")}};
    EXPECT_EQ(mesh.coordinates(), here);
    EXPECT_EQ(&mesh.world_group(), &mesh.group(std::vector<std::string>{"pp", "tp", "dp"}));
    EXPECT_THROW(mesh["cp"], ConfigError);
    EXPECT_THROW(mesh.group(std::vector<std::string>{"pp", "pp"}), ConfigError);
  });
}

TEST(ProcessGroupMesh, FurtherGroupsAreOfTheirMembersAlone) {
  run_ranks(4, [](World& world, ProcessGroupMesh& mesh) {
    auto groups = mesh.make_groups("pairs", {{0, 3}, {1, 3}});
    EXPECT_EQ(groups[0] != nullptr, world.rank() == 0 || world.rank() == 3);
    EXPECT_EQ(groups[1] != nullptr, world.rank() == 1 || world.rank() == 3);
    if (groups[0]) EXPECT_EQ(all_reduce_number(*groups[0], world.rank()), 3);
    if (groups[1]) EXPECT_EQ(all_reduce_number(*groups[1], world.rank()), 4);
  });
}

}  // namespace
}  // namespace gantry::testing
