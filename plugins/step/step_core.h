// The values that the computations of one training or evaluation step read and write.
#pragma once

#include <optional>
#include <vector>

#include "gantry/nn/router_balance.h"
#include "gantry/plugins/microbatch_losses.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/random_context.h"

namespace gantry {

// Settings that are the same for all forwards of a step.
struct StepSettings {
  bool needs_gradients = true;
  double seed_gradient = 1;                 // gradient of the sum of the losses
  std::optional<double> sample_share = {};  // Forward::step_share of one sample; not set: unknown
  bool keeps_outputs = false;
  std::int64_t logit_limit = 0;  // bytes of a tensor of logits, if outputs are not kept
  RandomContext random;          // its first_sample is that of the batch
  Recomputation recomputation = Recomputation::kNone;
  std::vector<int> recomputed_layers;          // see StageContext::Settings
  const nn::RouterBalance* balance = nullptr;  // losses that routers add; not owned; null: none
  nn::RouterChoices* choices = nullptr;        // counts of the routers; not owned; null: not counted
  const SequenceParts* parts = nullptr;        // if ranks share sequences: the batch is this rank's part; not owned
  int tensor_pieces = 1;                       // see Forward
  std::vector<double> mtp_ratios = {};         // see Forward; empty: none
};

struct StepCore {
  const StageModule& model;
  const SplitOutputs& split;
  const std::vector<Batch>& microbatches;
  StepSettings settings;
  MicrobatchLosses losses;
  std::vector<TensorDict> outputs;  // kept outputs, by microbatch
};

}  // namespace gantry
