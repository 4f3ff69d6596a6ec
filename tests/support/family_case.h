// Reference cases of model families (tests/golden/families): a Hugging Face directory with inputs, logits, loss,
// gradients and greedy tokens of transformers.
#pragma once

#include <string>
#include <vector>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/state_source.h"
#include "gantry/tensors/tensor_dict.h"
#include "ranks.h"

namespace gantry::testing {

struct FamilyOutcome {
  TensorDict outputs;    // "logits" and the other outputs of the last stage
  double loss = 0;       // with the losses that stages add
  double ce_loss = 0;    // without these
  bool trained = true;   // false: no gradients, because the layout shards the inputs of a joint loss
  TensorDict gradients;  // with the names and shapes of the model's files
};

// A layout that a case runs in.
struct FamilyLayout {
  Layout layout;
  bool sequence_parallel = false;
};
std::string describe(const FamilyLayout& how);

// The layouts in which a case runs, from the grid tp 1, 2, 3 x pp 1, 2 x cp 1, 2 x sequence parallel or not.
// With GANTRY_LONG=1 or GANTRY_FAMILIES these are all layouts that the case supports. Else they are three
// that cover each size of tp and pp.
std::vector<FamilyLayout> family_layouts(const std::string& folder);

// True if parallel.context must be 1: the samples have several sequences (multiple choice) or images, or
// has_one_stage().
bool shares_no_sequence(const std::string& folder);

// The precision in which a case is compared: float32 in general. Norms of three features without weights
// amplify rounding errors at single tokens, so their case uses float64: with tp 2 its logits differ by 6e-5
// in float32, and by 1e-7 in float64.
std::string precision_of_case(const std::string& folder);

// True if the loss compares all samples with each other, so that parallel.pipeline must be 1.
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

// True if the case has transformers' balancing loss, which is joint over layers and samples. The total loss
// and its gradients are compared only with parallel.pipeline and parallel.context 1.
bool has_joint_loss(const std::string& folder);

// The directories of the cases below `root` and, if set, below GANTRY_FAMILIES, without those with an
// adapter.
std::vector<std::string> family_cases(const std::string& root);

// True for a decoder. The labels in its files are not aligned with the logits, and it continues its input.
bool is_causal_case(const std::string& folder);

// The full parameters of a module, each once: a tied head has the name of the embedding.
std::vector<HeldTensor> full_parameters(const torch::nn::Module& model);

// The case's inputs, with labels that are aligned with the logits.
TensorDict family_batch(const std::string& folder);

// Runs one forward and backward of the case's inputs in a layout, like `gantry forward`.
FamilyOutcome run_family(const std::string& folder, const Layout& layout, bool sequence_parallel,
                         const std::string& precision = "float32");

// Expects (gtest) that an outcome matches the case. Tolerances: 5e-5 for logits, 1e-5 for the loss. For
// gradients, 2e-4 relative to the largest entry of the tensor or, if that is larger, a thousandth of the
// model's largest.
void expect_family(const std::string& folder, const FamilyOutcome& outcome, const std::string& label);

// The same for the outputs of `gantry forward` for models with experts. Tolerances: 5e-5 for the logits of
// each router, 1e-5 for the balancing loss and for the total loss.
void expect_routers(const std::string& folder, const TensorDict& outputs, const std::string& label);

}  // namespace gantry::testing
