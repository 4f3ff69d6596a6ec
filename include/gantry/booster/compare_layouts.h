// Whether a model's policy is right: one step in several layouts beside the same step on one rank, in float64.
//
// In every layout the loss, what modules compute and every gradient are one rank's, but for rounding. A policy that is
// wrong in a layout gives other numbers there, and the first module that does says where to look:
//
//   const auto batch = gantry::build_loader(config)->next().tensors;
//   return gantry::print_comparisons(gantry::compare_layouts(
//       config, [&] { return gantry::build_model(config); }, batch,
//       {"parallel.tensor=2,parallel.pipeline=1", "parallel.tensor=2,parallel.sequence_parallel=true"}));
//
// Compared are the loss, gradients, and outputs in the order in which one rank computes them: those of
// gantry::nn::Linear, Embedding, LayerNorm and RmsNorm by their paths, of each layer that the policy runs by
// StageContext::run_layers ("blocks.1"), and of the last stage ("logits (output)"). C++ modules have no hooks: what
// others compute shows in the next of these, unless they call nn::observed (nn/output_observer.h). An output of which a
// rank holds a part is compared with that part; one of a shape that no part of the whole has is passed over.
//
// What a policy does wrong on one rank too, it does in all layouts: that shows beside numbers from elsewhere alone.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/booster/booster.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"

namespace gantry {

struct CompareOptions {
  Criterion criterion = cross_entropy();
  // Of the larger of the one rank's tensor's largest entry and a thousandth of the largest of all tensors of its kind:
  // exact zeros (the gradient of a key's bias) are rounding.
  double tolerance = 1e-10;
  // Fills a boosted model's parameters, as load_weights does. Called by every rank of every run. Collective over the
  // mesh. Empty: the step is done with the initial weights.
  std::function<void(Boosted& boosted, const ProcessGroupMesh& mesh)> load = {};
};

struct LayoutDifference {
  std::string name;      // a module's path, or a parameter's name
  bool has_run = true;   // false: a module that computed something on one rank, and nothing in the layout
  double largest = 0;    // difference of an entry on any rank; infinity where one is no number
  double relative = 0;   // that over the largest entry of the one rank's tensor
  double reference = 0;  // that tensor's 2-norm
};

struct LayoutComparison {
  std::string layout;  // as it was given; "as configured" for an empty one
  std::string error;   // the line of a layout that can't be built, or whose step failed; empty: it ran
  int error_code = 0;  // its exit code
  double loss = 0, reference_loss = 0;
  bool is_loss_equal = true;
  int outputs = 0, gradients = 0;                 // how many were compared
  std::optional<LayoutDifference> first_output;   // the first that differs; of a failed step among those until then
  std::vector<LayoutDifference> wrong_gradients;  // in the model's order

  bool is_equal() const { return error.empty() && is_loss_equal && !first_output && wrong_gradients.empty(); }
};

// Runs one step of `batch` (dim 0 is samples; the whole step's) on one rank, and then in each layout, on threads of
// this process. `config` is resolved, and its policy is used. A layout is overrides of its keys of parallel and
// schedule, as --set has them, with commas between: "parallel.tensor=2,parallel.pipeline=2"; "" is the configuration's
// own. The one rank runs one microbatch. `build` makes the whole model, in any precision: every rank calls it on its
// own thread. A model that is not made under DeferredInit gets the values that the first call gave. Dropout is as
// configured; nothing is clipped and no optimizer steps.
//
// A layout that fails is an error of its own and does not keep the others from being compared. Throws what one rank's
// run fails with, and UsageError for another key in a layout, without a criterion, or within a rank of a launch. The
// outputs of the one rank are kept meanwhile: take a small batch.
std::vector<LayoutComparison> compare_layouts(const Config& config,
                                              const std::function<std::shared_ptr<torch::nn::Module>()>& build,
                                              const TensorDict& batch, const std::vector<std::string>& layouts,
                                              const CompareOptions& options = {});

// One line for a layout that is equal or failed; else also a line each for the loss, the first output and each
// gradient.
std::string describe(const LayoutComparison& comparison);

// 0 where all are equal, NumericalError's where one differs, else that of the first that failed.
int exit_code_of(const std::vector<LayoutComparison>& comparisons);

// Prints them to stdout and gives their exit code: what a test's main returns.
int print_comparisons(const std::vector<LayoutComparison>& comparisons);

}  // namespace gantry
