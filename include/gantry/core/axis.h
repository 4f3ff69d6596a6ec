// The names of the mesh's axes, their roles, and the two views of the ranks: the one place that knows them.
//
// The dense view (pp, dp, cp, tp) is that of all parameters but those of experts, whose view is (pp, edp, ep): the same
// ranks, with equal pp, counted otherwise. An axis of another name belongs to the dense view and cuts layers.
#pragma once

#include <string>
#include <vector>

namespace gantry {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

std::vector<std::string> names_of(const std::vector<Axis>& axes);

namespace axis {
inline constexpr const char* kPipeline = "pp";     // ranks hold other layers
inline constexpr const char* kData = "dp";         // ranks take other samples
inline constexpr const char* kContext = "cp";      // ranks take other parts of each sequence
inline constexpr const char* kTensor = "tp";       // ranks hold parts of each layer
inline constexpr const char* kExpertData = "edp";  // of the expert view: ranks hold the same experts
inline constexpr const char* kExpert = "ep";       // of the expert view: ranks hold other experts

enum class View { kDense, kExpert };

// Ranks along it hold other stages.
bool is_pipeline(const std::string& axis);
// Ranks along it see other parts of the batch, and hold the same parameters of that view unless those are cut over it.
bool is_batch(const std::string& axis, View view);
// The view counts ranks by it.
bool is_in(const std::string& axis, View view);
}  // namespace axis

}  // namespace gantry
