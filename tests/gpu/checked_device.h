// Runs a case on CPU ranks and on the ranks of a device, for the checks that compare the results.
#pragma once

#include <cstdlib>
#include <string>

#include "gantry/tensors/tensor_dict.h"
#include "model_case.h"

namespace gantry::testing {

// The comm.backend of the device. GANTRY_CHECK_BACKEND=local rehearses the checks without a device: both
// sides then run on the CPU.
inline std::string checked_backend() {
  const char* name = std::getenv("GANTRY_CHECK_BACKEND");
  return name ? name : "nccl";
}

inline bool is_rehearsal() { return checked_backend() == "local"; }

inline TensorDict on_cpu(const TensorDict& tensors) {
  TensorDict moved;
  for (const auto& [name, tensor] : tensors) moved.set(name, tensor.to(torch::kCPU));
  return moved;
}

// Runs the case on the checked backend. Returns the tensors on the CPU.
inline CaseResult run_checked(const ModelCase& what, const Parallelism& how = {}) {
  CaseResult result = run_case(what, how, checked_backend());
  result.gradients = on_cpu(result.gradients);
  result.weights = on_cpu(result.weights);
  return result;
}

// Expects that losses, norms, gradients and weights of the device match the CPU's within `tolerance`.
inline void expect_as_on_cpu(const ModelCase& what, const Parallelism& how, double tolerance,
                             const std::string& label) {
  const CaseResult expected = run_case(what, how, "local");
  expect_equal(expected, run_checked(what, how), tolerance, label);
}

}  // namespace gantry::testing
