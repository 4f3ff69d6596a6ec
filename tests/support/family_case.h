// Reference cases of model families (tests/golden/families): a Hugging Face directory with inputs, logits, loss,
// gradients and greedy tokens of transformers.
#pragma once

#include <string>
#include <vector>

#include "gantry/tensors/state_source.h"
#include "gantry/tensors/tensor_dict.h"
#include "ranks.h"

namespace gantry::testing {

struct FamilyOutcome {
  TensorDict outputs;    // "logits" and what else the last stage gives
  double loss = 0;       // with what stages added
  double ce_loss = 0;    // without
  bool trained = true;   // false: there are no gradients, since the loss is joint over what ranks share
  TensorDict gradients;  // by the names and in the layout of the model's files
};

// A layout that a case runs in.
struct FamilyLayout {
  Layout layout;
  bool sequence_parallel = false;
};
std::string describe(const FamilyLayout& how);

// Those of tp 1, 2, 3 x pp 1, 2 x cp 1, 2 x sequence parallel or not that the case can do. Under GANTRY_LONG=1 and with
// GANTRY_FAMILIES all of them; else three with each size of tp and pp.
std::vector<FamilyLayout> family_layouts(const std::string& folder);

// True where a sample has several sequences (multiple choice) or images, or has_one_stage(): `parallel.context` is
// refused.
bool shares_no_sequence(const std::string& folder);

// The precision in which a case is compared: float32, or float64 for weightless norms of three features, which amplify
// the rounding of float32 at single tokens. With tp 2 the logits then differ by 6e-5, and by 1e-7 in float64.
std::string precision_of_case(const std::string& folder);

// True if the loss compares all samples, so that parallel.pipeline is refused.
bool has_one_stage(const std::string& folder);

// True if the inputs of a model of text and images have images.
bool has_images(const std::string& folder);

// The keys of model.config that the case needs: its image encoder, if it has images, or the loss of multi-token
// prediction, if it has such layers.
std::string extra_keys(const std::string& folder);

// True if a layer has a mixer other than attention.
bool has_mixers(const std::string& folder);

// The largest parallel.tensor of the mixers and of the image encoder of a case; a large number if it has none.
int largest_tensor(const std::string& folder);

// The largest parallel.context of the mixers of a case with that parallel.tensor; a large number if it has none.
int largest_context(const std::string& folder, int tensor);

// transformers' balancing loss is joint over layers and samples: whole on one stage of ranks that share no sequence.
bool has_joint_loss(const std::string& folder);

// The folders of the cases: those below `root`, and those below GANTRY_FAMILIES where that is set;
// none with an adapter.
std::vector<std::string> family_cases(const std::string& root);

// True for a decoder's case: its labels are not aligned with the logits, and its text is continued.
bool is_causal_case(const std::string& folder);

// A module's parameters as one rank holds them, each once: a tied head by the embedding's name.
std::vector<HeldTensor> full_parameters(const torch::nn::Module& model);

// The case's inputs, with labels that are aligned with the logits.
TensorDict family_batch(const std::string& folder);

// One forward and backward of the case's inputs in that layout, as `gantry forward` does it.
FamilyOutcome run_family(const std::string& folder, const Layout& layout, bool sequence_parallel,
                         const std::string& precision = "float32");

// gtest-checks an outcome against the case: logits within 5e-5, the loss within 1e-5, gradients within 2e-4 of the
// larger of the tensor's largest entry and a thousandth of the model's.
void expect_family(const std::string& folder, const FamilyOutcome& outcome, const std::string& label);

// The same of what `gantry forward` writes of experts: logits of each router within 5e-5, the balancing loss and the
// whole one within 1e-5.
void expect_routers(const std::string& folder, const TensorDict& outputs, const std::string& label);

}  // namespace gantry::testing
