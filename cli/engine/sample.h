// Text continued by a byte-level model, greedily, by forward-only execute_pipeline.
#pragma once

#include <string>

#include "gantry/booster/booster.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"

namespace gantry::cli {

// The prompt and what follows, `length` bytes in all. Every call sees the last `window` bytes. Bytes that are not
// printable are shown as '.'. Collective over the world; every rank gets the text.
std::string sample_bytes(Booster& booster, Boosted& boosted, HybridParallelPlugin& plugin, const std::string& prompt,
                         std::int64_t window, std::int64_t length = 240);

}  // namespace gantry::cli
