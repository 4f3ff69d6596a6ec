#include "gantry/core/sharding/row_shards.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// The index of a rank among the ranks over which rows are sharded.
int place_of(const ViewShards& shards, const Coordinates& coordinates) {
  return ShardSpec{.axes = shards.axes}.rank_of(coordinates);
}

// The ranks for expert weights. They hold the same number of rows for experts and for other parameters: `shard` ranks
// of the batch axes with all their tp ranks, divided over ep.
ViewShards shards_of_experts(const Mesh& mesh, const ViewShards& dense) {
  ViewShards experts;
  for (const Axis& axis : mesh.axes(axis::View::kExpert))
    if (axis::is_batch(axis.name, axis::View::kExpert)) experts.axes.push_back(axis);
  const int expert = mesh.axis_size(axis::kExpert), tensor = experts.ranks() * expert / dense.ranks();
  const int sharing = dense.parts * tensor;
  if (sharing > expert && sharing % expert != 0)
    throw ConfigError(
        {"parallel.shard",
         fmt::format("{} * tensor {} = {} is not a multiple of expert {}", dense.parts, tensor, sharing, expert),
         "a multiple of expert, or at most expert", "use auto for all of data * context"});
  experts.parts = std::max(1, sharing / expert);
  return experts;
}

}  // namespace

int ViewShards::ranks() const { return ShardSpec{.axes = axes}.ranks(); }

int ViewShards::part_of(const Coordinates& coordinates) const { return place_of(*this, coordinates) % parts; }

int ViewShards::replica_of(const Coordinates& coordinates) const { return place_of(*this, coordinates) / parts; }

RowShards row_shards(const Mesh& mesh, int shard) {
  ViewShards shards;
  // Neighbours along cp hold different parts of one shard, in every order of the mesh.
  for (const char* name : {axis::kData, axis::kContext})
    for (const Axis& axis : mesh.axes())
      if (axis.name == name) shards.axes.push_back(axis);
  const int ranks = shards.ranks();
  shards.parts = shard == 0 ? ranks : shard;
  if (shards.parts < 1 || ranks % shards.parts != 0)
    throw ConfigError({"parallel.shard", fmt::format("{} does not divide the {} ranks of data * context", shard, ranks),
                       "a divisor of that number", "use auto for all of them"});
  if (!mesh.has_expert_view()) return {.dense = shards};
  return {.dense = shards, .experts = shards_of_experts(mesh, shards)};
}

ShardSpec row_shard(const Shape& left, const ViewShards& shards) {
  const std::int64_t row = left.size() > 1 ? std::max<std::int64_t>(left.back(), 1) : 1;
  ShardSpec shard = shard_rows(row, shards.axes);
  shard.repeat = shards.replicas();
  return shard;
}

}  // namespace gantry
