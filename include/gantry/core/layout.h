// The layouts of an activation over a group of ranks. nn/layout.h converts one layout to another.
//
// The gradient of a Replicate tensor is the full gradient on every rank. The gradient of a Shard is the corresponding
// part, and the gradient of a Partial is the full gradient.
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
struct Partial {  // each rank has a summand: the tensor is the sum over the ranks
  bool operator==(const Partial&) const = default;
};
using Layout = std::variant<Replicate, Shard, Partial>;
std::string describe(const Layout& layout);  // "Shard(1)"

}  // namespace gantry
