// Recurrent layers that continue from the state of earlier tokens, and keep the state after the last one.
#pragma once

#include <cstdint>

#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

// The name in LayerState: [samples, local heads or channels, ...].
inline constexpr const char* kRecurrence = "recurrence";

// Runs the next `count` tokens of a layer from its state, and returns their outputs. step(before) computes one token,
// chunks(before) any number; both return a RecurrenceResult. `state`: null if no state is kept.
template <class Step, class Chunks>
torch::Tensor continue_recurrence(LayerState* state, std::int64_t count, const Step& step, const Chunks& chunks) {
  const torch::Tensor before = state ? state->get(kRecurrence) : torch::Tensor();
  const RecurrenceResult made = before.defined() && count == 1 ? step(before) : chunks(before);
  if (state) state->set(kRecurrence, made.state);
  return made.out;
}

// Groups of features for the heads [first, first + count), of which `per_group` consecutive ones read a group. `groups`
// [samples, tokens, held groups, size] begins with the group of head `first`. Returns it unchanged if equal numbers of
// these heads read each held group, else a copy with one entry for each head.
torch::Tensor groups_of_heads(const torch::Tensor& groups, std::int64_t first, std::int64_t count,
                              std::int64_t per_group);

}  // namespace gantry::nn
