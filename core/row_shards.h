// ZeRO 3's cut of a parameter: rows of what its other cuts leave of it, over the ranks that see other parts of the
// batch. Torch-free: the planner, the tests and who splits a model ask the same.
#pragma once

#include <vector>

#include "gantry/core/mesh.h"
#include "gantry/core/placement.h"

namespace gantry {

// Over which ranks of a view rows are cut. With fewer parts than ranks each part is held by several: replicas of
// shards.
struct ViewShards {
  std::vector<Axis> axes;  // the batch axes, outermost first: neighbours along the last one hold other parts
  int parts = 1;

  int ranks() const;
  int replicas() const { return ranks() / parts; }  // of each part
  // Which part a rank holds, and which of its replicas it is.
  int part_of(const Coordinates& coordinates) const;
  int replica_of(const Coordinates& coordinates) const;
};

// Experts over ranks have other batch ranks than all else.
struct RowShards {
  ViewShards dense;
  ViewShards experts = {};  // without axes where there is no expert view

  const ViewShards& of(axis::View view) const { return view == axis::View::kExpert ? experts : dense; }
  // Some rank has a part of what another one has whole.
  bool is_over_ranks() const { return dense.ranks() > 1 || experts.ranks() > 1; }
};

// `shard`: how many of the batch ranks share a parameter, those along cp first, then along dp; 0: all of them. Of an
// expert's ranks shard * tp / ep share it, and each has it whole where that is less than one. ConfigError where ranks
// or parts don't divide.
RowShards row_shards(const Mesh& mesh, int shard);

// The cut of a tensor of which `left` is left: even, in rows of the last dim, and in single elements where there is no
// other dim. Parts may be empty.
ShardSpec row_shard(const Shape& left, const ViewShards& shards);

}  // namespace gantry
