#include "gantry/core/axis.h"

namespace gantry {

std::vector<std::string> names_of(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

}  // namespace gantry

namespace gantry::axis {

bool is_pipeline(const std::string& axis) { return axis == kPipeline; }

bool is_in(const std::string& axis, View view) {
  if (is_pipeline(axis)) return true;
  const bool of_experts = axis == kExpert || axis == kExpertData;
  return of_experts == (view == View::kExpert);
}

bool is_batch(const std::string& axis, View view) {
  return view == View::kExpert ? axis == kExpertData : axis == kData || axis == kContext;
}

}  // namespace gantry::axis
