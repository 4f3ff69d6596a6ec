// What ranks that share sequences do for attention beside its core: the bytes that travel, and the copies and sums that
// the method needs on the way.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/models/described/decoder_spec.h"
#include "gantry/planner/layout.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {

struct ContextOperations {
  bool halves_causal = true;  // the core leaves out what causality hides
  std::vector<Operation> forward, backward;
};

// Of one layer with context above 1. `tokens`: of a rank, all samples of a microbatch; `bytes`: of a value; `flops`: of
// the core's forward, beside which keys travel round a ring. By the method that the runtime takes where a host has all
// ranks of a sequence. ConfigError as of choose_context().
ContextOperations context_operations(const Layout& layout, const models::AttentionSpec& attention,
                                     std::int64_t sequence, double tokens, double bytes, double flops);

}  // namespace gantry::planner
