// The operations of attention: projections, rotary embedding, the core, and the exchange between context ranks.
#include <cmath>

#include "gantry/core/config/context_choice.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

using models::AttentionSpec;
using Kind = Operation::Kind;

// Bytes of the queries of a rank, and of its keys and values together: its tokens, and its tensor-parallel part of the
// heads.
struct HeadBytes {
  double queries, keys;
};

Operation copy_or_sum(double bytes) { return {Kind::kElementwise, 0, bytes}; }

// The additional operations of an attention core whose sequence is on several context ranks.
struct ContextOperations {
  bool halves_causal = true;  // the core skips scores that the causal mask hides
  std::vector<Operation> forward, backward;
};

// See nn/ulysses_attention.cpp: a tensor is split, the pieces are concatenated, sent, and concatenated again, which
// makes three copies. On the way back, the last copy is an addition to zeros. Keys and values are one tensor.
ContextOperations exchange_heads(const HeadBytes& of) {
  const double there = 6, back = 8, joined = 2, parted = 6;
  const std::vector<Operation> sent = {
      {Kind::kHeads, 0, of.queries}, {Kind::kHeads, 0, of.keys}, {Kind::kHeads, 0, of.queries}};
  ContextOperations made{.forward = sent, .backward = sent};
  made.forward.push_back(copy_or_sum((there + back) * of.queries + (joined + there) * of.keys));
  made.backward.push_back(copy_or_sum((there + back) * of.queries + (parted + back) * of.keys));
  return made;
}

// See nn/ring_attention.cpp: the results and the gradients of each block are weighted and accumulated.
ContextOperations pass_round(const HeadBytes& of, int ranks, double flops) {
  const double merged = 7, added = 7, added_keys = 9, joined = 2;
  ContextOperations made;
  made.forward = {{Kind::kPass, flops, of.keys * (ranks - 1)},
                  copy_or_sum(joined * of.keys + (1 + merged * ranks) * of.queries)};
  made.backward = {{Kind::kPass, 2.5 * flops, 2 * of.keys * (ranks - 1)},
                   copy_or_sum((3 + added * ranks) * of.queries + added_keys * ranks * of.keys)};
  return made;
}

// See nn/context_attention.cpp: all keys are gathered. The kernels do not support the mask of a part of the queries as
// a causal mask.
ContextOperations gather_keys(const HeadBytes& of, int ranks) {
  const double joined = 2, parted = 6, gathered = of.keys * ranks;
  ContextOperations made{.halves_causal = false};
  made.forward = {{Kind::kGatherKeys, 0, gathered}, copy_or_sum(joined * (of.keys + gathered))};
  made.backward = {{Kind::kGatherKeys, 0, gathered}, copy_or_sum((joined + parted) * gathered)};
  return made;
}

// The additional operations of one layer with context above 1, by the method that the runtime selects if all ranks of a
// sequence are on one host. `tokens`: of the rank, over all samples of a microbatch; `bytes`: of a value; `flops`: of
// the forward of the core, which overlaps with the ring. Throws ConfigError like choose_context().
ContextOperations context_operations(const Layout& layout, const AttentionSpec& attention, std::int64_t sequence,
                                     double tokens, double bytes, double flops) {
  const ContextRequest request{.ranks = layout.context,
                               .tensor = layout.tensor,
                               .method = context_method_of(layout.context_method),
                               .ulysses = layout.ulysses};
  const std::int64_t key_heads = attention.latent ? attention.heads : attention.key_heads;
  const ContextChoice choice =
      choose_context(request, {static_cast<int>(attention.heads), static_cast<int>(key_heads)}, {.tokens = sequence});
  const double features = bytes * tokens * static_cast<double>(attention.head_size);
  const HeadBytes of{features * largest_part(attention.heads, layout.tensor),
                     2 * features * largest_part(key_heads, layout.tensor)};
  if (choice.method == ContextMethod::kUlysses) return exchange_heads(of);
  if (choice.method == ContextMethod::kAllGather) return gather_keys(of, layout.context);
  if (choice.method == ContextMethod::kRing) return pass_round(of, layout.context, flops);
  // After the exchange a rank has more tokens of fewer heads: the same number of values.
  ContextOperations made = exchange_heads(of);
  const ContextOperations ring = pass_round(of, layout.context / choice.exchanging, flops);
  made.forward.insert(made.forward.end(), ring.forward.begin(), ring.forward.end());
  made.backward.insert(made.backward.end(), ring.backward.begin(), ring.backward.end());
  return made;
}

}  // namespace

// Each query head attends to all keys that its mask allows. The backward computes both matrix products twice, and a
// fused core recomputes its scores.
void OperationBuilder::core(const AttentionSpec& attention) {
  const auto& program = workload_.program;
  const double heads = own_heads(attention.heads), share = heads / as_double(attention.heads);
  const bool fused = program.fused_attention && attention.dropout == 0 && attention.soft_cap == 0 &&
                     attention.slopes.empty() && !attention.sinks;
  const bool halves = fused && program.halves_causal;
  const auto flops_of = [&](bool causal_half) {
    const double keys = models::keys_met(attention, workload_.sequence, causal_half);
    return share * tokens_ * models::core_flops(attention, keys);
  };
  double flops = flops_of(halves);
  ContextOperations of_context;
  if (layout_.context > 1) {
    of_context = context_operations(layout_, attention, workload_.sequence, tokens_, bytes_, flops);
    if (!of_context.halves_causal) {
      flops = flops_of(false);
      // The keys and values of all ranks are kept instead of those of this rank.
      const double own = bytes_ * tokens_ * own_heads(attention.key_heads) * 2 * as_double(attention.head_size);
      if (program.keeps_results) keep_for_core(own * (layout_.context - 1));
    }
  }
  const double value = as_double(attention.latent ? attention.latent->value : attention.head_size);
  const double inputs = bytes_ * tokens_ * heads * (2 * as_double(attention.head_size) + 2 * value);
  const std::size_t first = part_.forward.size();
  if (fused) {
    part_.forward.push_back({Kind::kCore, flops, inputs});
    part_.input_gradient.push_back({Kind::kCore, 2.5 * flops, 2 * inputs});
    keep_for_core(4 * tokens_ * heads);  // log-sum-exp of each row, in float32
  } else {
    const double scores = tokens_ * heads * as_double(workload_.sequence);
    const double mask = program.mask_bytes * scores;
    for (int each = 0; each < 2; ++each) {
      part_.forward.push_back({Kind::kProduct, flops / 2, bytes_ * scores + inputs / 2});
      part_.input_gradient.push_back({Kind::kProduct, flops / 2, bytes_ * scores + inputs / 2});
      part_.input_gradient.push_back({Kind::kProduct, flops / 2, bytes_ * scores + inputs / 2});
    }
    elementwise(2 * bytes_ * scores, 3 * bytes_ * scores);  // scale, mask, softmax
    keep_for_core(bytes_ * scores);
    if (attention.dropout > 0) {
      elementwise(2 * bytes_ * scores + mask, 2 * bytes_ * scores + mask);
      keep_for_core(bytes_ * scores + mask);
    }
  }
  part_.core.assign(part_.forward.begin() + static_cast<std::ptrdiff_t>(first), part_.forward.end());
  part_.forward.insert(part_.forward.end(), of_context.forward.begin(), of_context.forward.end());
  part_.input_gradient.insert(part_.input_gradient.end(), of_context.backward.begin(), of_context.backward.end());
}

void OperationBuilder::projections(const AttentionSpec& attention) {
  const double heads = own_heads(attention.heads), keys = own_heads(attention.key_heads);
  const double size = as_double(attention.head_size);
  if (!attention.latent)
    return product(tokens_, hidden_,
                   ((attention.gated ? 2 : 1) * heads + (attention.keys_of < 0 ? 2 : 0) * keys) * size,
                   bytes_ * tokens_between_ * hidden_, attention.bias);
  const models::LatentSpec& latent = *attention.latent;
  const double kv_a_proj = as_double(latent.key_rank + latent.rope);
  // A norm between two products keeps its input, the normalized values, and its output.
  const double norms = workload_.program.keeps_results ? 3 : 2;
  const double queries = heads * size, q_a_proj = as_double(latent.query_rank);
  if (latent.query_rank > 0) {
    product(tokens_, hidden_, q_a_proj, bytes_ * tokens_between_ * hidden_);
    product(tokens_, q_a_proj, queries, norms * bytes_ * tokens_ * q_a_proj);
  } else {
    product(tokens_, hidden_, queries, bytes_ * tokens_between_ * hidden_);
  }
  product(tokens_, hidden_, kv_a_proj, 0);
  product(tokens_, as_double(latent.key_rank), heads * as_double(latent.plain + latent.value),
          bytes_ * tokens_ * (norms * as_double(latent.key_rank) + as_double(latent.rope)));
}

void OperationBuilder::attention(const AttentionSpec& attention) {
  const double heads = own_heads(attention.heads);
  const double own = attention.keys_of < 0 ? own_heads(attention.key_heads) : 0;  // without those of another layer
  const double keys = attention.latent ? heads : own;
  const double size = as_double(attention.head_size);
  const double value = attention.latent ? as_double(attention.latent->value) : size;
  enter_split();
  projections(attention);
  // The gradients of queries, keys and values from a fused projection are concatenated.
  const double projected = bytes_ * tokens_ * (heads * size + keys * (size + value));
  if (attention.rows != models::ProjectionRows::kSeparate && workload_.program.keeps_results)
    part_.input_gradient.push_back({Kind::kElementwise, 0, 2 * projected});
  keep(projected);
  // Values are a view of the tensor that also has the keys without positions.
  if (attention.latent && workload_.program.keeps_results)
    keep(bytes_ * tokens_ * heads * as_double(attention.latent->plain));
  const double rotated = bytes_ * tokens_ * (heads + keys) * size;
  if (attention.rotary >= 0) {
    elementwise(2 * rotated, 2 * rotated);  // one pass each way: tensors/kernels/rotate.h
    if (workload_.program.keeps_results && !attention.latent) keep(rotated);
  }
  if (attention.head_norm.exists() || attention.qk_norm.exists() || attention.per_head_norm.exists()) {
    elementwise(2 * rotated, 3 * rotated);
    keep(rotated);
  }
  core(attention);
  if (attention.gated) {
    const double gated = bytes_ * tokens_ * heads * value;
    elementwise(5 * gated, 8 * gated);  // a sigmoid, and a multiplication
    keep(3 * gated);                    // the gates, their sigmoid and the outputs of the core
  }
  product(tokens_, heads * value, hidden_, bytes_ * tokens_ * heads * value, attention.output_bias);
  // Measured by tests/trainer/trainer_memory_test.cpp: a tensor-parallel layer keeps one more full activation.
  if (layout_.tensor > 1 && workload_.program.keeps_results) keep(bytes_ * tokens_ * hidden_);
  leave_split();
}

}  // namespace gantry::planner
