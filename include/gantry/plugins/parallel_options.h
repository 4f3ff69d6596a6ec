// The options of HybridParallelPlugin as typed values, by concept. The sizes of the mesh axes are those of the world.
//
//   gantry::ParallelOptions options;
//   options.zero = {.stage = 1};
//   options.schedule = {.name = "interleaved_1f1b", .microbatches = 8, .chunks = 2};
//   options.recompute.how = gantry::Recomputation::kFull;
//   gantry::Booster booster(std::make_unique<gantry::HybridParallelPlugin>(world, options));
//
// A Config has the same options under the keys named here, and docs/configuration.md describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/context_method.h"
#include "gantry/core/mesh.h"
#include "gantry/core/shard_style.h"
#include "gantry/nn/stage_context.h"
#include "gantry/schedule/gather.h"
#include "gantry/schedule/offload.h"

namespace gantry {

// How the ranks of tp share layers.
struct TensorOptions {
  bool sequence_parallel = false;  // shard activations between tensor-parallel layers along the sequence
  int overlap = 1;  // parallel.tensor_overlap: number of row chunks into which layers split their messages
};

// How the ranks of cp share sequences.
struct ContextOptions {
  std::optional<ContextMethod> method;  // parallel.context_method; not set: auto
  int ulysses = 0;                      // kUlyssesRing: number of ranks that exchange heads; 0: auto
  std::int64_t tokens = 0;              // data.sequence_length, for `auto`: tokens of a sequence; 0: unknown
};

// The ranks that compute the embedding and the output layer (parallel.vocabulary).
enum class VocabularyPlace {
  kStages,    // those of the first and the last stage
  kPipeline,  // all ranks of a pipeline, each a part of the vocabulary
  kAuto       // kPipeline if it shortens the step
};

// How ranks share layers, sequences and the vocabulary.
struct AxesOptions {
  TensorOptions tensor = {};
  ContextOptions context = {};
  VocabularyPlace vocabulary = VocabularyPlace::kStages;
};

// How the replicas share the state of the model (parallel.zero, shard, gather and bucket_mb).
struct ZeroOptions {
  int stage = 0;                           // 1 shards the optimizer's state, 2 also gradients, 3 also parameters
  int shard = 0;                           // stage 3: number of ranks over which a parameter is sharded; 0: auto
  std::optional<schedule::Gather> gather;  // stage 3: kStep, kWindow or kMicrobatch; not set: auto
  double bucket_mb = 25;                   // maximum size of a gradient bucket in MiB
};

// Activations that the backward computes again (schedule.recompute and schedule.recompute_layers).
struct RecomputeOptions {
  Recomputation how = Recomputation::kNone;
  // Number of layers, counted from the first layer of each stage: one number, or one per stage; empty: all.
  std::vector<int> layers;
};

// The load-balancing loss of routers (experts.balance).
enum class RouterLoss { kNone, kSequence, kMicrobatch, kTransformers };
const char* name_of(RouterLoss loss);  // its name in the configuration

// Models with experts (section `experts`).
struct ExpertsOptions {
  ExpertDispatch dispatch = ExpertDispatch::kAllToAll;
  RouterLoss balance = RouterLoss::kNone;
  double aux_loss = 0;     // coefficient of `balance`
  double z_loss = 0;       // coefficient of the router z-loss
  double bias_update = 0;  // step size of DeepSeek-V3's expert bias update; 0: no update
};

// The types of numbers (`precision`, `loss_scale`).
struct PrecisionOptions {
  std::optional<torch::ScalarType> parameters;  // if set, boost() requires the model's parameters to have this type
  std::optional<LossScaleConfig> loss_scale;    // for float16: dynamic loss scaling
};

// The optimizer's step.
struct UpdateOptions {
  std::optional<double> clip_grad_norm;  // optimizer.clip_grad_norm: maximum global norm of the gradients
  bool skip_non_finite = false;  // train.non_finite: skip: skip a step whose gradient norm is not finite; else: error
  double ema = 0;                // train.ema: decay of the moving average of the parameters; 0: no average
  int audit_every = 0;           // train.audit_every: steps between comparisons of replicas; 0: never
  bool is_saved = false;         // checkpoint.path: boost() refuses an optimizer whose state cannot be saved
};

// Devices (train.offload, train.device_graphs).
struct DeviceOptions {
  schedule::Offload offload;  // data that wait in host memory
  bool graphs = false;        // stages are captured as CUDA graphs and replayed
};

struct ParallelOptions {
  std::string policy;      // model.policy: a registered name; empty: from the class of the model
  std::uint64_t seed = 1;  // train.seed: for dropout and other random numbers of a step
  AxesOptions axes = {};
  ZeroOptions zero = {};
  ScheduleOptions schedule = {};
  RecomputeOptions recompute = {};
  ExpertsOptions experts = {};
  PrecisionOptions precision = {};
  UpdateOptions update = {};
  DeviceOptions devices = {};
};

// Returns the options that a configuration states for a job with this mesh. `schedule.recompute: auto` becomes its
// choice. Throws ConfigError for a value that a file could not have either, and if `auto` finds no choice.
ParallelOptions parallel_options(const Config& config, const Mesh& mesh);

// Throws ConfigError, with the key of the configuration, if an option has a value that a file could not have, or if two
// options exclude each other. HybridParallelPlugin calls it.
void check(const ParallelOptions& options, const Mesh& mesh);

}  // namespace gantry
