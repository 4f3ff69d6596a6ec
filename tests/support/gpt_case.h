// One training case that runs in any layout: the same model, data and steps, and everything that must not depend on the
// layout.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/tensors/tensor_dict.h"
#include "ranks.h"

namespace gantry::testing {

struct GptCase {
  int layers = 5;
  int heads = 4;
  int width = 24;
  int vocabulary = 211;
  bool tied = true;
  double dropout = 0;
  int tokens = 7;                           // of a sample
  std::vector<int> batches = {6, 6, 6, 5};  // global samples of each step
  double ignored = 0.2;                     // share of labels that are not counted, unevenly spread
  double clip = 0.5;
  std::string precision = "float64";
};

struct Parallelism {
  Layout layout;
  std::string schedule = "1f1b";
  int microbatches = 1;
  bool sequence_parallel = false;
};
std::string describe(const Parallelism& parallelism);

// Of the last step: whole gradients before clipping; after it: whole weights.
struct CaseResult {
  std::vector<double> losses, norms;
  TensorDict gradients, weights;
};

// Runs the case on threads (or this MPI job's ranks) and gives rank 0's view; collective, so every rank has it.
CaseResult run_case(const GptCase& what, const Parallelism& how, const std::string& backend = "auto");

// gtest-checks two results against each other: relative to the larger of a tensor's largest entry and a thousandth of
// the model's largest gradient. Key biases are left out of the weights: their exact gradient is zero, so AdamW follows
// rounding.
void expect_equal(const CaseResult& expected, const CaseResult& actual, double tolerance, const std::string& label);
// To the bit.
void expect_identical(const CaseResult& expected, const CaseResult& actual, const std::string& label);

}  // namespace gantry::testing
