// A dense model as the start of one with experts (Komatsuzaki et al., arXiv 2212.05055; granularity: He et al., arXiv
// 2410.07524).
#pragma once

#include <cstdint>
#include <string>

#include "gantry/checkpoint/hugging_face.h"

namespace gantry {

struct UpcycleOptions {
  std::int64_t experts = 0, used = 0;  // of a layer, and of a token
  // Number of equal parts of each MLP, one expert each. Both numbers above are multiples of it.
  std::int64_t granularity = 1;
  std::uint64_t seed = 1;  // of the routers' weights
};

// Writes `dense`, a Hugging Face directory or a checkpoint's step folder, to `directory` as Hugging Face has the family
// with experts: mixtral of llama and mistral, qwen3_moe of qwen3. Expert e has the slice e % granularity of its layer's
// MLP. A router has a random row for each full copy of the MLP, which its slices share: so a token that uses `used`
// experts uses full copies, whose weights add up to 1 / granularity, and down_proj is that many times larger. The
// model's logits are the dense one's, to the rounding of its sums, and of down_proj where granularity is no power of 2.
//
// UsageError for numbers that are no multiples and for what is there already in another form; ConfigError, naming the
// key, for a model that no family with experts can be; InputError and CheckpointError for files.
void upcycle(const std::string& dense, const std::string& directory, const UpcycleOptions& options,
             const ExportOptions& written = {});

}  // namespace gantry
