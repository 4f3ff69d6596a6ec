#include "gantry/trainer/step_parts.h"

#include <algorithm>
#include <sstream>

#include "gantry/core/axis.h"

namespace gantry {
namespace {

constexpr std::size_t kSteps = 50;

// Returns the part for a group's label such as "dp+cp", which lists the axes that the group spans. Null for a
// group without a part, such as "dp+tp".
double planner::Seconds::*part_of_label(const std::string& label, bool has_pipeline) {
  std::istringstream words(label);
  std::vector<std::string> axes;
  for (std::string word; std::getline(words, word, '+');) axes.push_back(word);
  const auto has = [&](const char* axis) { return std::ranges::find(axes, axis) != axes.end(); };
  if (axes.size() == 1 && has(axis::kTensor)) return &planner::Seconds::tensor;
  if (axes.size() == 1 && has(axis::kContext)) return &planner::Seconds::context;
  if (axes.size() == 1 && has(axis::kExpert)) return &planner::Seconds::expert;
  if (has_pipeline && has(axis::kPipeline)) return &planner::Seconds::pipeline;
  const bool replicas = std::ranges::all_of(axes, [](const std::string& axis) {
    return axis::is_batch(axis, axis::View::kDense) || axis::is_batch(axis, axis::View::kExpert);
  });
  return replicas ? &planner::Seconds::data : nullptr;
}

planner::Seconds minus(const planner::Seconds& one, const planner::Seconds& other) {
  planner::Seconds difference = one;
  difference += other.times(-1);
  return difference;
}

}  // namespace

planner::Seconds StepParts::by_part(const std::vector<CommunicationCount>& counts) const {
  planner::Seconds sums;
  for (const CommunicationCount& count : counts)
    if (double planner::Seconds::*part = part_of_label(count.axis, has_pipeline_)) sums.*part += count.seconds;
  return sums;
}

void StepParts::add(double step_seconds, double busy, const std::vector<CommunicationCount>& counts) {
  const planner::Seconds now = by_part(counts);
  planner::Seconds step = minus(now, seen_);
  seen_ = now;
  const double within = step.tensor + step.context + step.expert + (reduces_within_ ? step.data : 0);
  step.compute = std::max(0.0, busy - within);
  step.optimizer = std::max(0.0, step_seconds - step.sum());
  if (++added_ == 2) last_.clear();  // the first step also allocates buffers that later steps reuse
  last_.push_back(step);
  if (last_.size() > kSteps) last_.pop_front();
}

planner::Seconds StepParts::mean() const {
  planner::Seconds sum;
  for (const planner::Seconds& step : last_) sum += step;
  return last_.empty() ? sum : sum.times(1.0 / static_cast<double>(last_.size()));
}

}  // namespace gantry
