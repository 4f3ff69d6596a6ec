// The input of an estimate as plain values: a model's training step (Workload), and its layout over ranks (Layout).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gantry/models/described/decoder_spec.h"

namespace gantry {
struct OptimizerConfig;
}

namespace gantry::planner {

// The part of a parameter that an optimizer steps as a whole. A rank that steps a row or matrix of a sharded parameter
// has a copy of it.
enum class SteppedUnit { kElement, kRow, kMatrix };

// Properties of a training program that differ between programs: computation, memory and communication.
struct Program {
  bool fused_attention = true;  // attention scores are not stored; false: several operations store them
  bool halves_causal = true;    // the attention core skips scores that the causal mask hides
  // Each operation keeps the inputs of its own backward, even if another operation keeps similar values: heads before
  // and after the rotary embedding, split and merged heads, a gate and its activation. Backwards then allocate
  // gradients of activations in addition.
  bool keeps_results = true;
  double mask_bytes = 2;        // bytes per element of a dropout mask, kept until the backward
  double gradient_bytes = 4;    // bytes per element of a gradient, as stored and reduced over data-parallel ranks
  double optimizer_bytes = 12;  // bytes per parameter: master weights and moments
  double bytes_of_ends = 0;     // additional optimizer bytes per parameter outside of the repeated layers
  SteppedUnit unit = SteppedUnit::kElement;  // the optimizer needs such units in full
  bool overlaps_gradients = true;            // gradient reduction overlaps with the last backward
  bool blocking_messages = false;            // a rank waits for its messages between stages
  bool scatters_messages = false;            // tensor-parallel ranks send a part each and gather the received parts
};
// The properties of Gantry for a precision and an optimizer of the configuration.
Program gantry_program(const std::string& precision, const OptimizerConfig& optimizer);

// The trained parameters, by registered names; all of them if nothing is set.
struct TrainedPart {
  std::set<std::string> frozen;
  std::map<std::string, std::int64_t> adapters;  // weight -> rank of its adapter
  std::int64_t tokens = 0;                       // rows of the embedding that have trained values next to frozen ones
  bool dora = false;                             // each adapter also has a magnitude for each row of its weight
  // Frozen weights in 4 or 8 bits, by name: bytes of the stored form over those in the precision of the workload.
  std::map<std::string, double> quantised;
  // The size of the teacher's hidden states that those of the model are projected to by a trained matrix; 0: none.
  std::int64_t projected = 0;

  bool trains(const std::string& parameter) const { return !frozen.contains(parameter); }
  double stored_share(const std::string& parameter) const {
    const auto found = quantised.find(parameter);
    return found == quantised.end() ? 1 : found->second;
  }
  bool is_all() const { return frozen.empty() && adapters.empty(); }
};

// The teacher of a distillation.
struct TeacherPart {
  // train.objective.teacher_parallel.
  struct OwnLayout {
    int tensor = 1, pipeline = 1;
    std::optional<int> microbatches;  // schedule.microbatches
  };
  models::DecoderSpec model;
  std::optional<OwnLayout> own;  // empty: the layout of the student
  bool mixes = false;            // the loss compares both distributions with their mixture (jsd)
  std::int64_t hidden = 0;       // the size of its hidden states, if they are compared
};

// A training step: the model, the sizes of the batch, and the program.
struct Workload {
  models::DecoderSpec model;
  std::int64_t sequence = 1;  // tokens per sample
  std::int64_t batch = 1;     // samples per step, over all replicas
  std::string precision = "bfloat16";
  Program program;
  TrainedPart trained = {};
  bool keeps_logits = false;                             // a microbatch's logits are stored whatever their size
  bool runs_ahead = false;                               // one more forward pass of the batch before each step (kto)
  std::shared_ptr<const TeacherPart> teacher = nullptr;  // null: no distillation
};

// kSelective: the attention core. kParts: attention and MLP separately. kFull: full layers.
enum class Recompute { kNone, kSelective, kParts, kFull };

// How a workload is distributed over ranks. For the fields, see the keys of parallel and schedule.
struct Layout {
  int tensor = 1, pipeline = 1, data = 1, context = 1, expert = 1;
  std::string context_method = "auto";  // see parallel.context_method
  int ulysses = 0;                      // see parallel.ulysses
  bool sequence_parallel = false;
  int zero = 0;
  // For zero 3: number of ranks that share the rows of a parameter; 0: all ranks with different samples.
  int shard = 0;
  std::string gather = "auto";  // for zero 3: step, window, microbatch or auto, see parallel.gather
  std::string schedule = "1f1b";
  int chunks = 1;
  int microbatch = 1;    // samples of the largest microbatch
  int microbatches = 0;  // microbatches per replica; 0: from the number of samples
  Recompute recompute = Recompute::kNone;
  bool shares_vocabulary = false;  // all ranks of the pipeline compute embedding and head
  int vocabulary_algorithm = 2;    // see schedule.vocabulary_algorithm
  bool balanced = false;           // layers are distributed by work; otherwise by number
  std::vector<int> layers;         // layers of each stage, which override `balanced`; empty: not set

  // The number of microbatches for a replica's part of the batch; the last one may be smaller.
  int microbatches_of(std::int64_t batch) const;
  int ranks() const { return tensor * pipeline * data * context; }
  bool operator==(const Layout&) const = default;
};

}  // namespace gantry::planner
