// One training case that runs in any layout: the same model, data and steps, and everything that must not depend on the
// layout.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/expert_load.h"
#include "gantry/tensors/tensor_dict.h"
#include "ranks.h"

namespace gantry::testing {

struct ModelCase {
  std::string family = "gpt2";  // any
  int layers = 5;
  int heads = 4;
  int key_heads = 4;  // of families that know them
  int width = 24;
  int vocabulary = 211;
  bool tied = true;
  double dropout = 0;
  int tokens = 7;                        // of a sample
  std::vector<int> batches = {6, 6, 5};  // global samples of each step
  int distinct = 0;                      // steps until the data begin again; 0: never
  double ignored = 0.2;                  // share of labels that are not counted, unevenly spread
  double clip = 0.5;
  double smoothing = 0;  // of the labels
  double z_loss = 0;
  std::string precision = "float64";
  std::string optimizer = "adamw";
  double lr = 1e-2;
  std::string head = "ForMaskedLM";  // bert, roberta
  int labels = 0;                    // above 0: number of labels of a decoder with such a head
  bool padded = false;               // an attention_mask for decoders too: padding before the text
  std::string keys = "{}";           // further ones of config.json, as JSON
  bool packed = false;               // several documents in each sample
  int first_counted = 0;             // labels of tokens before this one are not counted
  bool causal_labels = false;        // labels are not shifted yet
  ExpertsConfig experts = {};        // of models with experts
  // Samples of different lengths, padded on the right; each replica's batch is only as long as its longest sample. Some
  // samples have no counted label. Each step begins with a call whose gradients are dropped.
  bool irregular = false;
  std::vector<int> documents = {};  // how long those of a sample are; each sample begins with another; empty: as packed
};

// Its config.json, but for model_type.
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
  int accumulation = 1;  // calls of execute_pipeline a step
  std::string context_method = "auto";
  int shard = 0;  // of zero 3; 0: all
  std::string gather = "auto";
  std::string vocabulary = "stages";
  int vocabulary_algorithm = 2;
  int tensor_overlap = 1;
  std::string dispatch = "all_to_all";  // of experts over ranks
  std::string offload = "none";
  std::int64_t logit_limit = 0;    // bytes of logits that are computed in full; 0: the default
  std::string layers = "default";  // schedule.layers
};
std::string describe(const Parallelism& parallelism);

// The full gradients of the last step before clipping, and the full weights after it.
struct CaseResult {
  std::vector<double> losses, norms;
  std::vector<std::map<std::string, double>> added;  // losses that stages added, of each step
  std::vector<ExpertLoads> loads;                    // of each step; without layers where calls add to each other
  TensorDict gradients, weights;
};

// Runs the case on the test program's ranks (start_ranks(); "local": on threads and the CPU) and gives rank 0's view on
// the CPU; collective, so every rank has it.
CaseResult run_case(const ModelCase& what, const Parallelism& how, const std::string& backend = "auto");

// gtest-checks two results against each other: relative to the larger of a tensor's largest entry and a thousandth of
// the model's largest gradient. Key biases are left out of the weights: their exact gradient is zero, so AdamW follows
// rounding.
void expect_equal(const CaseResult& expected, const CaseResult& actual, double tolerance, const std::string& label);
// To the bit.
void expect_identical(const CaseResult& expected, const CaseResult& actual, const std::string& label);

// Every layout gives the numbers of one rank on the CPU in float64 within 1e-10. Stops at the first that does not.
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
// grid_rows() of them. interleaved_1f1b has two chunks.
std::vector<Parallelism> layout_grid(const LayoutAxes& axes);

}  // namespace gantry::testing
