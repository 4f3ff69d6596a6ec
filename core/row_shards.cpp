#include "gantry/core/row_shards.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Of a rank among those that rows are cut over.
int place_of(const RowShards& shards, const Coordinates& coordinates) {
  return Cut{.axes = shards.axes}.rank_of(coordinates);
}

}  // namespace

int RowShards::ranks() const { return Cut{.axes = axes}.ranks(); }

int RowShards::part_of(const Coordinates& coordinates) const { return place_of(*this, coordinates) % parts; }

int RowShards::replica_of(const Coordinates& coordinates) const { return place_of(*this, coordinates) / parts; }

RowShards row_shards(const Mesh& mesh, int shard) {
  RowShards shards;
  // Whatever the order of the mesh is, neighbours along cp hold other parts of one shard.
  for (const char* name : {axis::kData, axis::kContext})
    for (const Axis& axis : mesh.axes())
      if (axis.name == name) shards.axes.push_back(axis);
  const int ranks = shards.ranks();
  shards.parts = shard == 0 ? ranks : shard;
  if (shards.parts < 1 || ranks % shards.parts != 0)
    throw ConfigError({"parallel.shard", fmt::format("{} does not divide the {} ranks of data * context", shard, ranks),
                       "a divisor of them", "use auto for all of them"});
  return shards;
}

Cut row_cut(const Shape& left, const RowShards& shards) {
  const std::int64_t row = left.size() > 1 ? std::max<std::int64_t>(left.back(), 1) : 1;
  Cut cut = shard_rows(row, shards.axes);
  cut.repeat = shards.replicas();
  return cut;
}

}  // namespace gantry
