// A step on one rank, the same step in a layout, and the comparison of their numbers. Internal to booster/.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "gantry/booster/compare_layouts.h"
#include "gantry/booster/compared_outputs.h"

namespace gantry {

// The results of the step on one rank.
struct FullStep {
  TensorDict values;  // initial values of the model, if it is not deferred
  FullOutputs outputs;
  TensorDict gradients;
  double loss = 0;
  std::map<std::string, double> added_losses;
};

// The largest differences from FullStep on any rank of a layout. The mutex guards the other members until the
// ranks have ended.
struct LayoutStep {
  std::mutex mutex;
  std::map<std::string, double> outputs, gradients, added_losses;
  double loss = 0;
};

// Add the differences to `comparison`, with the tolerance of CompareOptions.
void judge_losses(const FullStep& full, const LayoutStep& found, double tolerance, LayoutComparison& comparison);
void judge_gradients(const FullStep& full, const LayoutStep& found, double tolerance, LayoutComparison& comparison);
void judge_outputs(const FullStep& full, const LayoutStep& found, double tolerance, LayoutComparison& comparison);

}  // namespace gantry
