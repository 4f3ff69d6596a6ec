#include "gantry/booster/compared_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

LayoutDifference difference_of(const std::string& name, double largest, const torch::Tensor& reference) {
  const double entry = largest_entry(reference);
  return {.name = name,
          .largest = largest,
          .relative = entry > 0 ? largest / entry : std::numeric_limits<double>::infinity(),
          .reference = reference.to(torch::kFloat64).norm().item<double>()};
}

// Decides whether a difference is more than rounding, relative to tensors whose largest entry is `scale`.
class Judge {
 public:
  Judge(double tolerance, double scale) : tolerance_(tolerance), floor_(scale / 1000) {}
  bool differs(double difference, const torch::Tensor& reference) const {
    return !(difference <= tolerance_ * std::max(largest_entry(reference), floor_));
  }

 private:
  double tolerance_, floor_;
};

}  // namespace

void judge_losses(const FullStep& full, const LayoutStep& found, double tolerance, LayoutComparison& comparison) {
  comparison.loss = found.loss;
  comparison.is_loss_equal = std::abs(found.loss - full.loss) <= tolerance * std::abs(full.loss);
  std::set<std::string> names;
  for (const auto* losses : {&full.added_losses, &found.added_losses})
    for (const auto& [name, loss] : *losses) names.insert(name);
  const auto value_in = [](const std::map<std::string, double>& losses, const std::string& name) {
    const auto loss = losses.find(name);
    return loss == losses.end() ? 0 : loss->second;
  };
  for (const auto& name : names) {
    const double loss = value_in(found.added_losses, name), reference = value_in(full.added_losses, name);
    if (std::abs(loss - reference) <= tolerance * std::max(std::abs(reference), std::abs(full.loss) / 1000)) continue;
    const auto places = full.outputs.losses.find(name);
    comparison.wrong_losses.push_back(
        {.name = name,
         .places = places == full.outputs.losses.end() ? std::vector<std::string>() : places->second,
         .loss = loss,
         .reference_loss = reference});
  }
}

void judge_gradients(const FullStep& full, const LayoutStep& found, double tolerance, LayoutComparison& comparison) {
  double scale = 0;
  for (const auto& [name, gradient] : full.gradients) scale = std::max(scale, largest_entry(gradient));
  const Judge judge(tolerance, scale);
  for (const auto& [name, gradient] : full.gradients) {
    const auto difference = found.gradients.find(name);
    if (difference == found.gradients.end()) continue;
    ++comparison.gradients;
    if (judge.differs(difference->second, gradient))
      comparison.wrong_gradients.push_back(difference_of(name, difference->second, gradient));
  }
}

void judge_outputs(const FullStep& full, const LayoutStep& found, double tolerance, LayoutComparison& comparison) {
  double scale = 0;
  for (const auto& [name, calls] : full.outputs.outputs)
    for (const auto& output : calls) scale = std::max(scale, largest_entry(output));
  const Judge judge(tolerance, scale);
  std::optional<LayoutDifference> first_absent;  // before the first output that differs
  for (const auto& name : full.outputs.order) {
    const torch::Tensor& output = full.outputs.outputs.at(name).front();
    const auto difference = found.outputs.find(name);
    if (difference == found.outputs.end()) {
      if (!first_absent && !comparison.first_output) {
        first_absent = difference_of(name, largest_entry(output), output);
        first_absent->has_run = false;
      }
      continue;
    }
    ++comparison.outputs;
    if (!comparison.first_output && judge.differs(difference->second, output))
      comparison.first_output = difference_of(name, difference->second, output);
  }
  // If all numbers are equal, a module that the layout does not need is not reported.
  if (first_absent && comparison.error.empty() && !comparison.is_equal()) comparison.first_output = first_absent;
}

}  // namespace gantry
