// Text and exit code of a comparison of layouts.
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/booster/compare_layouts.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string difference_text(const LayoutDifference& difference) {
  return fmt::format("{} by {:.3g} ({:.3g} of its largest entry; its norm is {:.3g})", difference.name,
                     difference.largest, difference.relative, difference.reference);
}

std::string first_output_text(const std::optional<LayoutDifference>& first) {
  if (!first) return "";
  if (!first->has_run) return fmt::format("  first module: {} did not run\n", first->name);
  return fmt::format("  first module: {}\n", difference_text(*first));
}

}  // namespace

std::string describe(const LayoutComparison& comparison) {
  if (!comparison.error.empty())
    return fmt::format("{}: failed: {}\n{}", comparison.layout, comparison.error,
                       first_output_text(comparison.first_output));
  if (comparison.is_equal())
    return fmt::format("{}: equal ({} outputs, {} gradients)\n", comparison.layout, comparison.outputs,
                       comparison.gradients);
  std::string text = fmt::format("{}: differs\n", comparison.layout);
  if (!comparison.is_loss_equal)
    text += fmt::format("  loss: {:.12g}, on one rank {:.12g}\n", comparison.loss, comparison.reference_loss);
  for (const auto& added : comparison.wrong_losses)
    text += fmt::format("  added loss {}: {:.12g}, on one rank {:.12g}; added in {}\n", added.name, added.loss,
                        added.reference_loss, fmt::join(added.places, ", "));
  text += first_output_text(comparison.first_output);
  for (const auto& gradient : comparison.wrong_gradients)
    text += fmt::format("  gradient: {}\n", difference_text(gradient));
  return text;
}

int exit_code_of(const std::vector<LayoutComparison>& comparisons) {
  int code = 0;
  for (const auto& comparison : comparisons) {
    if (!comparison.is_equal() && comparison.error.empty()) return NumericalError::kExitCode;
    if (code == 0) code = comparison.error_code;
  }
  return code;
}

int print_comparisons(const std::vector<LayoutComparison>& comparisons) {
  for (const auto& comparison : comparisons) std::fputs(describe(comparison).c_str(), stdout);
  return exit_code_of(comparisons);
}

}  // namespace gantry
