// Tests a model's policy: compares one training step in several layouts with the same step on one rank, in float64.
//
// In every layout, the loss, the outputs of modules and all gradients must equal those of one rank, except for
// rounding. If a policy is wrong in a layout, the values differ, and the first module that differs shows where to look:
//
//   const auto batch = gantry::build_loader(config)->next().tensors;
//   return gantry::print_comparisons(gantry::compare_layouts(
//       config, [&] { return gantry::build_model(config); }, batch,
//       {"parallel.tensor=2,parallel.pipeline=1", "parallel.tensor=2,parallel.sequence_parallel=true"}));
//
// The loss, the losses that the model adds, the gradients, and the outputs of modules are compared, in the order in
// which one rank computes them. The outputs are those of gantry::nn::Linear, Embedding, LayerNorm and RmsNorm by their
// paths, of each layer that the policy runs by StageContext::run_layers ("blocks.1"), and of the last stage ("logits
// (output)"). LibTorch modules have no hooks: the output of another module is compared only if it calls nn::observed()
// (nn/output_observer.h). An output of which a rank holds a part is compared with that part. If several parts have its
// shape, it is compared with the nearest one. An output whose shape fits no part of the full output is not compared,
// but counted as equal.
//
// Errors that a policy makes on one rank too are the same in all layouts, and are not found.
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
  // Relative tolerance. Differences are divided by the larger of two values: the largest entry of the single-rank
  // tensor, and 1/1000 of the largest entry of all tensors of its kind. The second one ignores rounding noise in
  // tensors that should be zero, such as the gradient of a key bias.
  double tolerance = 1e-10;
  // Sets the parameters of a boosted model, like load_weights(). Every rank calls it in every run. Collective over the
  // mesh. Empty: the step uses the initial weights.
  std::function<void(Boosted& boosted, const ProcessGroupMesh& mesh)> load = {};
};

// How far an output or a gradient of a layout differs from that of one rank.
struct LayoutDifference {
  std::string name;      // path of a module, or name of a parameter
  bool has_run = true;   // false: the module has an output on one rank, but not in the layout
  double largest = 0;    // largest absolute difference on any rank; infinity if an entry is not a number
  double relative = 0;   // `largest` / the largest entry of the single-rank tensor
  double reference = 0;  // 2-norm of the single-rank tensor
};

// A loss that the model adds (nn/added_loss.h), by name.
struct AddedLossDifference {
  std::string name;
  std::vector<std::string> places;  // layers that add it, with the part ("blocks.1 (mlp)"); "between layers"
  double loss = 0, reference_loss = 0;
};

// The result for one layout.
struct LayoutComparison {
  std::string layout;  // as passed; "as configured" for an empty string
  std::string error;   // error line of a layout that cannot be built or whose step failed; empty: the step ran
  int error_code = 0;  // exit code of that error
  double loss = 0, reference_loss = 0;
  bool is_loss_equal = true;
  std::vector<AddedLossDifference> wrong_losses;
  int outputs = 0, gradients = 0;  // number of compared tensors; outputs whose shape fits no part count too
  // First output that differs; if the step failed, of those computed before.
  std::optional<LayoutDifference> first_output;
  std::vector<LayoutDifference> wrong_gradients;  // in the order of the model

  bool is_equal() const {
    return error.empty() && is_loss_equal && wrong_losses.empty() && !first_output && wrong_gradients.empty();
  }
};

// Runs one step of `batch` (dim 0: all samples of the step) on one rank, and then in each layout, on threads of this
// process. `config` must be resolved; its policy is used. A layout is a comma-separated list of overrides of keys of
// parallel and schedule, as in --set: "parallel.tensor=2,parallel.pipeline=2"; "" is the layout of `config`. The run on
// one rank uses one microbatch.
// `build` creates the full model, in any precision. Every rank calls it on its own thread. A model that is not created
// under DeferredInit gets the values of the first call. Dropout is as configured. There is no clipping and no optimizer
// step.
//
// If a layout fails, its error is in its result, and the other layouts are still compared. Throws the error of the run
// on one rank, and UsageError if a layout sets another key, if there is no criterion, or within a rank of a launch. The
// outputs of the run on one rank are kept in memory, so use a small batch.
std::vector<LayoutComparison> compare_layouts(const Config& config,
                                              const std::function<std::shared_ptr<torch::nn::Module>()>& build,
                                              const TensorDict& batch, const std::vector<std::string>& layouts,
                                              const CompareOptions& options = {});

// Returns one line for a layout that is equal or failed; otherwise also one line each for the loss, the added losses,
// the first output and each gradient that differ.
std::string describe(const LayoutComparison& comparison);

// Returns 0 if all layouts are equal, the exit code of NumericalError if one differs, otherwise that of the first
// failed one.
int exit_code_of(const std::vector<LayoutComparison>& comparisons);

// Prints them to stdout and returns exit_code_of(), for the main function of a test.
int print_comparisons(const std::vector<LayoutComparison>& comparisons);

}  // namespace gantry
