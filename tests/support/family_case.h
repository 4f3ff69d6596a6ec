// Reference cases of model families (tests/golden/families): a Hugging Face directory with inputs, logits, loss,
// gradients and greedy tokens of transformers.
#pragma once

#include <string>
#include <vector>

#include "gantry/tensors/tensor_dict.h"
#include "ranks.h"

namespace gantry::testing {

struct FamilyOutcome {
  TensorDict outputs;    // "logits" and what else the last stage gives
  double loss = 0;       // with what stages added
  double ce_loss = 0;    // without
  bool trained = true;   // false: there are no gradients, since the loss is joint over layers that stages share
  TensorDict gradients;  // by the names and in the layout of the model's files
};

// The folders of the cases: those below `root`, and those below GANTRY_FAMILIES where that is set.
std::vector<std::string> family_cases(const std::string& root);

// True for a decoder's case: its labels are not aligned with the logits, and its text is continued.
bool is_causal_case(const std::string& folder);

// The case's inputs, with labels that are aligned with the logits.
TensorDict family_batch(const std::string& folder);

// One forward and backward of the case's inputs in that layout, as `gantry forward` does it.
FamilyOutcome run_family(const std::string& folder, const Layout& layout, bool sequence_parallel,
                         const std::string& precision = "float32");

// gtest-checks an outcome against the case: logits within 5e-5, the loss within 1e-5, gradients within 2e-4 of the
// larger of the tensor's largest entry and a thousandth of the model's.
void expect_family(const std::string& folder, const FamilyOutcome& outcome, const std::string& label);

}  // namespace gantry::testing
