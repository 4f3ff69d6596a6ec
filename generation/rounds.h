// The forwards of one call of generate(), token after token. The prompts go through the stages in as many groups as
// there are stages: each stage computes one group's token while the next one computes that of the group before.
#pragma once

#include "gantry/generation/plan.h"

namespace gantry::generation {

// Where the model's stages are. Nothing is owned.
struct StagePlaces {
  const StageModule* module = nullptr;
  const PipelineStageManager* stages = nullptr;
  ProcessGroup* pipeline = nullptr;  // null where all stages are here
  SplitDim split;                    // of the logits
  bool is_cached = true;
  bool is_split_by_sequence = false;     // activations are sequence shards
  ProcessGroup* sharing = nullptr;       // of the ranks along cp, which have the same prompts; null: there is one
  const SequenceParts* parts = nullptr;  // with a cache, how those share texts
  // Where replicas compute each other's tokens (experts over ranks): their group, and the most prompts that one of them
  // has. They all run as many forwards, without samples once their own texts have ended. Null: each runs its own.
  ProcessGroup* replicas = nullptr;
  std::int64_t most_prompts = 0;
};

// The sequences of these prompts, of which the first is number `first_prompt` of the call, on every rank of the
// pipeline. Collective over pp, cp and tp, and over the replicas where there are such; also without prompts.
std::vector<GeneratedSequence> run_rounds(const StagePlaces& places, const Plan& plan,
                                          const std::vector<TokenIds>& prompts, std::int64_t first_prompt);

// The sequences as text, for ranks that lack them.
std::string to_text(const std::vector<GeneratedSequence>& sequences);
std::vector<GeneratedSequence> from_text(const std::string& text);

}  // namespace gantry::generation
