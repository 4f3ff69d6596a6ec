// Runs the forwards of one call of generate(), token by token. The prompts are divided into as many groups as
// there are stages. While a stage computes the token of one group, the next stage computes that of the group
// before.
#pragma once

#include "gantry/generation/plan.h"

namespace gantry::generation {

// The location of the model's stages. All pointers must outlive the call.
struct StagePlaces {
  const StageModule* module = nullptr;
  const PipelineStageManager* stages = nullptr;
  ProcessGroup* pipeline = nullptr;  // null: this rank has all stages
  SplitDim split;                    // split of the logits over tp
  bool is_cached = true;
  bool is_split_by_sequence = false;     // activations are sequence shards
  ProcessGroup* sharing = nullptr;       // ranks along cp, which have the same prompts; null: only this rank
  const SequenceParts* parts = nullptr;  // partition of the texts over these ranks, with a cache only
  // The group of replicas that compute each other's tokens (experts over ranks). They all run the same number
  // of forwards, with empty batches once their own texts have ended. Null: each replica runs its own
  // forwards.
  ProcessGroup* replicas = nullptr;
  // The largest number of prompts of one of these replicas.
  std::int64_t most_prompts = 0;
};

// Returns the sequences of these prompts, on every rank of the pipeline. `first_prompt`: the index of the
// first prompt in the call. Collective over pp, cp and tp, and over places.replicas if it is set; also for a
// rank without prompts.
std::vector<GeneratedSequence> run_rounds(const StagePlaces& places, const Plan& plan,
                                          const std::vector<TokenIds>& prompts, std::int64_t first_prompt);

// Converts sequences to text and back, to send them to other ranks.
std::string to_text(const std::vector<GeneratedSequence>& sequences);
std::vector<GeneratedSequence> from_text(const std::string& text);

}  // namespace gantry::generation
