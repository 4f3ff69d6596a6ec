// The names of the mesh axes, their roles, and the two views of the ranks.
//
// The dense view (pp, dp, cp, tp) applies to all parameters except those of experts. The expert view (pp, edp, ep)
// divides the same ranks of a stage differently. An axis with another name belongs to the dense view and shards layers.
#pragma once

#include <string>
#include <vector>

namespace gantry {

// A mesh axis and its number of ranks.
struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

std::vector<std::string> names_of(const std::vector<Axis>& axes);

namespace axis {
inline constexpr const char* kPipeline = "pp";     // ranks hold different layers
inline constexpr const char* kData = "dp";         // ranks process different samples
inline constexpr const char* kContext = "cp";      // ranks process different parts of each sequence
inline constexpr const char* kTensor = "tp";       // ranks hold different parts of each layer
inline constexpr const char* kExpertData = "edp";  // expert view: ranks hold the same experts
inline constexpr const char* kExpert = "ep";       // expert view: ranks hold different experts

enum class View { kDense, kExpert };

// True if the ranks along this axis hold different stages.
bool is_pipeline(const std::string& axis);
// True if the ranks along this axis process different parts of the batch. They replicate the parameters of the view,
// unless these are sharded over the axis.
bool is_batch(const std::string& axis, View view);
// True if the view has this axis.
bool is_in(const std::string& axis, View view);
}  // namespace axis

}  // namespace gantry
