// A training case that runs in any layout, with the same model, data and steps. Its results must not depend
// on the layout.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/expert_load.h"
#include "gantry/tensors/tensor_dict.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {

struct ModelCase {
  std::string family = "gpt2";  // any model family
  int layers = 5;
  int heads = 4;
  int key_heads = 4;  // number of KV heads; only some families use it
  int width = 24;
  int vocabulary = 211;
  bool tied = true;
  double dropout = 0;
  int tokens = 7;  // tokens per sample
  // Global batch size of each step.
  std::vector<int> batches = is_long_form() ? std::vector<int>{6, 6, 5} : std::vector<int>{6, 5};
  int distinct = 0;      // number of steps after which the data repeat; 0: never
  double ignored = 0.2;  // share of labels that are ignored, unevenly distributed
  double clip = 0.5;
  double smoothing = 0;  // label smoothing
  double z_loss = 0;
  std::string precision = "float64";
  std::string optimizer = "adamw";
  double lr = 1e-2;
  std::string head = "ForMaskedLM";  // encoders of text; "Model": groups of texts, also for decoders
  int labels = 0;                    // > 0: a decoder with a classification head for this number of labels
  bool padded = false;               // decoders get an attention_mask too, with padding before the text
  std::string keys = "{}";           // further keys of config.json, as JSON
  bool packed = false;               // several documents in each sample
  int first_counted = 0;             // labels of tokens before this one are not counted
  bool causal_labels = false;        // the labels are not shifted; the criterion shifts them
  ExpertsConfig experts = {};        // only for models with experts
  // Samples have different lengths and are padded on the right. The batch of each replica is only as long as
  // its longest sample. Some samples have no counted label. Each step begins with a call whose gradients are
  // dropped.
  bool irregular = false;
  // Document lengths in a sample. Each sample begins with the next length. Empty: see `packed`.
  std::vector<int> documents = {};
};

// The keys of the case's config.json, without model_type.
std::string config_keys(const ModelCase& what);

struct Parallelism {
  Layout layout;
  std::string schedule = "1f1b";
  int microbatches = 1;
  bool sequence_parallel = false;
  int chunks = 1;
  std::string recompute = "none";
  std::vector<int> recompute_layers = {};
  int zero = 0;
  int accumulation = 1;  // calls of execute_pipeline per step
  std::string context_method = "auto";
  int shard = 0;  // parallel.shard, for zero 3; 0: all ranks
  std::string gather = "auto";
  std::string vocabulary = "stages";
  int vocabulary_algorithm = 2;
  int tensor_overlap = 1;
  std::string dispatch = "all_to_all";  // experts.dispatch, with expert parallelism
  std::string offload = "none";
  std::int64_t logit_limit = 0;    // bytes of logits up to which they are computed in full; 0: the default
  std::string layers = "default";  // schedule.layers
};
std::string describe(const Parallelism& parallelism);

// The full gradients of the last step before clipping, and the full weights after it.
struct CaseResult {
  std::vector<double> losses, norms;
  std::vector<std::map<std::string, double>> added;  // losses added by stages, per step
  std::vector<ExpertLoads> loads;                    // per step; no layers if several calls accumulate a step
  TensorDict gradients, weights;
};

// Runs the case on the test program's ranks (start_ranks()), or on CPU threads if `backend` is "local".
// Collective. Returns the result on every rank, with tensors on the CPU.
CaseResult run_case(const ModelCase& what, const Parallelism& how, const std::string& backend = "auto");

// Expects (gtest) that two results match. Differences are relative to the largest entry of a tensor or, if
// that is larger, a thousandth of the model's largest gradient. The weights of key biases are not compared:
// their exact gradient is zero, so AdamW amplifies rounding errors.
void expect_equal(const CaseResult& expected, const CaseResult& actual, double tolerance, const std::string& label);
// Expects bitwise identical losses, gradients and weights.
void expect_identical(const CaseResult& expected, const CaseResult& actual, const std::string& label);

// Expects that every layout matches a single rank on the CPU in float64 within 1e-10. Stops at the first
// mismatch.
void expect_layouts_equal(const ModelCase& what, const std::vector<Parallelism>& layouts);

// Four layouts that together have tp, sequence parallelism, stages, replicas and recomputation.
std::vector<Parallelism> mixed_layouts();

// The values of each axis of a grid of layouts.
struct LayoutAxes {
  std::vector<int> tensor = {1}, pipeline = {1}, data = {1};
  std::vector<std::string> schedules = {"1f1b"};
  std::vector<int> microbatches = {2}, accumulation = {1}, zero = {0};
  std::vector<bool> sequence_parallel = {false};
};
// The layouts of grid_rows() for these axes. interleaved_1f1b gets two chunks.
std::vector<Parallelism> layout_grid(const LayoutAxes& axes);

}  // namespace gantry::testing
