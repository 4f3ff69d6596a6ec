#include "gantry/planner/context_operations.h"

#include <algorithm>

#include "gantry/core/context_choice.h"

namespace gantry::planner {
namespace {

using Kind = Operation::Kind;

// Bytes of a rank's tensors: of its tokens and its tensor-parallel part of the heads.
struct HeadBytes {
  double queries, keys;  // of keys and values together
};

Operation element_wise(double bytes) { return {Kind::kElementwise, 0, bytes}; }

// nn/ulysses_attention.cpp: a tensor is cut into pieces, these are joined, sent, and joined again: three copies; on the
// way back added to zeros in place of the last one. Keys and values are one tensor.
ContextOperations exchange_heads(const HeadBytes& of) {
  const double there = 6, back = 8, joined = 2, parted = 6;
  const std::vector<Operation> sent = {
      {Kind::kHeads, 0, of.queries}, {Kind::kHeads, 0, of.keys}, {Kind::kHeads, 0, of.queries}};
  ContextOperations made{.forward = sent, .backward = sent};
  made.forward.push_back(element_wise((there + back) * of.queries + (joined + there) * of.keys));
  made.backward.push_back(element_wise((there + back) * of.queries + (parted + back) * of.keys));
  return made;
}

// nn/ring_attention.cpp: each block's results are weighed and added to those before, and each block's gradients.
ContextOperations pass_round(const HeadBytes& of, int ranks, double flops) {
  const double merged = 7, added = 7, added_keys = 9, joined = 2;
  ContextOperations made;
  made.forward = {{Kind::kPass, flops, of.keys * (ranks - 1)},
                  element_wise(joined * of.keys + (1 + merged * ranks) * of.queries)};
  made.backward = {{Kind::kPass, 2.5 * flops, 2 * of.keys * (ranks - 1)},
                   element_wise((3 + added * ranks) * of.queries + added_keys * ranks * of.keys)};
  return made;
}

// nn/context_attention.cpp: all keys are gathered; the mask of a part of the queries is no causal one for the kernels.
ContextOperations gather_keys(const HeadBytes& of, int ranks) {
  const double joined = 2, parted = 6, whole = of.keys * ranks;
  ContextOperations made{.halves_causal = false};
  made.forward = {{Kind::kGatherKeys, 0, whole}, element_wise(joined * (of.keys + whole))};
  made.backward = {{Kind::kGatherKeys, 0, whole}, element_wise((joined + parted) * whole)};
  return made;
}

double part(std::int64_t heads, int ranks) { return static_cast<double>((heads + ranks - 1) / ranks); }

}  // namespace

ContextOperations context_operations(const Layout& layout, const models::AttentionSpec& attention,
                                     std::int64_t sequence, double tokens, double bytes, double flops) {
  ParallelConfig parallel;
  parallel.tensor = layout.tensor;
  parallel.context = layout.context;
  parallel.context_method = layout.context_method;
  parallel.ulysses = layout.ulysses;
  const std::int64_t key_heads = attention.latent ? attention.heads : attention.key_heads;
  const ContextChoice choice =
      choose_context(parallel, {static_cast<int>(attention.heads), static_cast<int>(key_heads)}, {.tokens = sequence});
  const double features = bytes * tokens * static_cast<double>(attention.head_size);
  const HeadBytes of{features * part(attention.heads, layout.tensor), 2 * features * part(key_heads, layout.tensor)};
  if (choice.method == ContextMethod::kUlysses) return exchange_heads(of);
  if (choice.method == ContextMethod::kAllGather) return gather_keys(of, layout.context);
  if (choice.method == ContextMethod::kRing) return pass_round(of, layout.context, flops);
  // Behind the exchange a rank has more tokens of fewer heads: as many values.
  ContextOperations made = exchange_heads(of);
  const ContextOperations ring = pass_round(of, layout.context / choice.exchanging, flops);
  made.forward.insert(made.forward.end(), ring.forward.begin(), ring.forward.end());
  made.backward.insert(made.backward.end(), ring.backward.begin(), ring.backward.end());
  return made;
}

}  // namespace gantry::planner
