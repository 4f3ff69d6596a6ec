// How an activation lies over a group of ranks. nn/layout.h brings it from one layout to another.
//
// The gradient of a Replicate tensor is whole on every rank, that of a Shard is the same part, and that of a Partial is
// whole.
#pragma once

#include <string>
#include <variant>

namespace gantry {

struct Replicate {
  bool operator==(const Replicate&) const = default;
};
struct Shard {  // this rank's part along dim; negative dims count from the end
  int dim = 1;
  bool operator==(const Shard&) const = default;
};
struct Partial {  // the sum over the ranks is the tensor
  bool operator==(const Partial&) const = default;
};
using Layout = std::variant<Replicate, Shard, Partial>;
std::string describe(const Layout& layout);  // "Shard(1)"

}  // namespace gantry
