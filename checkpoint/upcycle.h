// Turns a dense model into the start of one with experts (Komatsuzaki et al., arXiv 2212.05055; granularity:
// He et al., arXiv 2410.07524).
#pragma once

#include <cstdint>
#include <string>

#include "gantry/checkpoint/hugging_face.h"

namespace gantry {

struct UpcycleOptions {
  std::int64_t experts = 0, used = 0;  // experts per layer; experts per token
  // Number of equal parts of each MLP, one expert each. Both numbers above are multiples of it.
  std::int64_t granularity = 1;
  std::uint64_t seed = 1;  // seed of the routers' weights
};

// Writes `dense`, a Hugging Face directory or a checkpoint's step folder, to `directory` in Hugging Face's
// form of the family with experts: mixtral for llama and mistral, qwen3_moe for qwen3.
// Expert e has the slice e % granularity of its layer's MLP. A router has one random row per full copy of the
// MLP, shared by the slices of the copy. The `used` experts of a token are therefore full copies, whose
// weights add up to 1 / granularity; down_proj is scaled by granularity to compensate. The logits equal those
// of the dense model, except for the rounding of sums and, if granularity is not a power of 2, of down_proj.
//
// Throws UsageError if a number is not a multiple of granularity, or if `directory` is `dense` or has a model in
// another form. Throws ConfigError, naming the key, if no family with experts fits the model. Throws InputError or
// CheckpointError for invalid files.
void upcycle(const std::string& dense, const std::string& directory, const UpcycleOptions& options,
             const ExportOptions& written = {});

}  // namespace gantry
