// What is estimated: a model's training step (Workload), and how it is laid over ranks (Layout). Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gantry/models/described/decoder_spec.h"

namespace gantry::planner {

// What a training program computes, keeps and sends, where programs differ.
struct Program {
  bool fused_attention = true;  // scores are never written; else they are, by several operations
  bool halves_causal = true;    // the attention core leaves out what causality hides
  // Each operation keeps what its own backward reads: heads as projected beside turned ones, heads apart beside merged
  // ones, a gate beside its activation; and backwards make gradients of activations beside these.
  bool keeps_results = true;
  double mask_bytes = 2;           // that dropout keeps of an entry until the backward
  double gradient_bytes = 4;       // of one entry, as it is kept and reduced over data parallel ranks
  double optimizer_bytes = 12;     // of one parameter: masters and running means
  bool overlaps_gradients = true;  // their reduction runs beside the last backward
  bool blocking_messages = false;  // a rank waits for its messages between stages
  bool scatters_messages = false;  // tensor ranks send a part each, and gather what comes
};
// Gantry itself, for a precision and an optimizer of the configuration.
Program gantry_program(const std::string& precision, const std::string& optimizer);

// What of a model is trained, by registered names of its parameters: all of it, where neither is stated.
struct TrainedPart {
  std::set<std::string> frozen;
  std::map<std::string, std::int64_t> adapters;  // ranks, by the weight that each is of

  bool trains(const std::string& parameter) const { return !frozen.contains(parameter); }
  bool is_all() const { return frozen.empty() && adapters.empty(); }
};

struct Workload {
  models::DecoderSpec model;
  std::int64_t sequence = 1;  // tokens of a sample
  std::int64_t batch = 1;     // samples of a step, over all replicas
  std::string precision = "bfloat16";
  Program program;
  TrainedPart trained = {};
};

// Selective: attention's core. Parts: attention and MLP, each by itself. Full: whole layers.
enum class Recompute { kNone, kSelective, kParts, kFull };

struct Layout {
  int tensor = 1, pipeline = 1, data = 1, context = 1, expert = 1;
  std::string context_method = "auto";  // as of parallel.context_method
  int ulysses = 0;                      // as of parallel.ulysses
  bool sequence_parallel = false;
  int zero = 0;
  int shard = 0;                // of zero 3: ranks that share a parameter's rows; 0: all that see other samples
  std::string gather = "auto";  // likewise: step, window, microbatch or auto, as of parallel.gather
  std::string schedule = "1f1b";
  int chunks = 1;
  int microbatch = 1;    // samples of the largest one
  int microbatches = 0;  // of a replica; 0: as many as its samples make
  Recompute recompute = Recompute::kNone;
  bool shares_vocabulary = false;  // embedding and head are computed by all ranks of the pipeline
  int vocabulary_algorithm = 2;    // as of schedule.vocabulary_algorithm
  bool balanced = false;           // layers by work; else by count
  std::vector<int> layers;         // of each stage, in place of that; empty: none stated

  // Of a replica's part of the batch, a last one perhaps smaller.
  int microbatches_of(std::int64_t batch) const;
  int ranks() const { return tensor * pipeline * data * context; }
  bool operator==(const Layout&) const = default;
};

}  // namespace gantry::planner
