// The row shards of ZeRO 3: each parameter, after its other shards, is sharded by rows over the ranks that process
// different parts of the batch. Without LibTorch, so that the planner, the tests and the model splitter share it.
#pragma once

#include <vector>

#include "gantry/core/mesh.h"
#include "gantry/core/placement.h"

namespace gantry {

// The ranks of a view over which rows are sharded. If there are fewer parts than ranks, each part is held by several
// ranks (replicated shards).
struct ViewShards {
  std::vector<Axis> axes;  // the batch axes, outermost first; neighbours along the last one hold different parts
  int parts = 1;

  int ranks() const;
  int replicas() const { return ranks() / parts; }  // number of replicas of each part
  // The part that a rank holds, and the index of its replica.
  int part_of(const Coordinates& coordinates) const;
  int replica_of(const Coordinates& coordinates) const;
};

// Expert weights that are distributed over ranks have other batch ranks than all other parameters.
struct RowShards {
  ViewShards dense;
  ViewShards experts = {};  // without axes if there is no expert view

  const ViewShards& of(axis::View view) const { return view == axis::View::kExpert ? experts : dense; }
  // Whether some ranks hold only a part of the rows that other ranks hold in full.
  bool is_over_ranks() const { return dense.ranks() > 1 || experts.ranks() > 1; }
};

// `shard`: number of batch ranks that share a parameter, first along cp, then along dp; 0: all of them. An expert's
// parameter is shared by shard * tp / ep ranks; each rank has the full parameter if that is less than one. Throws
// ConfigError if ranks or parts do not divide evenly.
RowShards row_shards(const Mesh& mesh, int shard);

// The shard of a tensor whose local shape is `left`: even, in rows of the last dim, or in single elements if there is
// no other dim. Parts may be empty.
ShardSpec row_shard(const Shape& left, const ViewShards& shards);

}  // namespace gantry
