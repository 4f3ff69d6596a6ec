#include "gantry/planner/operation_builder.h"

#include <algorithm>
#include <cmath>

#include "gantry/models/described/model_flops.h"
#include "gantry/planner/context_operations.h"

namespace gantry::planner {
namespace {

using Kind = Operation::Kind;
using models::AttentionSpec;
using models::NormSpec;

double as_double(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

double part_of(std::int64_t whole, int ranks) { return std::ceil(as_double(whole) / ranks); }

void OperationBuilder::product(double rows, double in, double out, double kept_input, bool bias) {
  const double flops = 2 * rows * in * out;
  const double moved = bytes_ * (rows * in + in * out + rows * out);
  part_.forward.push_back({Kind::kProduct, flops, moved});
  part_.input_gradient.push_back({Kind::kProduct, flops, moved});
  // The gradient is read and written where it is kept.
  part_.weight_gradient.push_back(
      {Kind::kProduct, flops, bytes_ * (rows * in + rows * out) + 2 * workload_.program.gradient_bytes * in * out});
  keep(kept_input);
  if (!bias || !workload_.program.keeps_results) return;
  // Copied to where the product is added to it; its gradient is a sum over rows. Operations of their own.
  part_.forward.push_back({Kind::kElementwise, 0, 2 * bytes_ * rows * out});
  part_.weight_gradient.push_back({Kind::kElementwise, 0, bytes_ * rows * out});
}

void OperationBuilder::norm(const NormSpec& norm) {
  if (!norm.exists()) return;
  const double values = tokens_between_ * hidden_ * bytes_;
  elementwise(2 * values, 3 * values, norm.kind == NormSpec::Kind::kRms ? "rms_norm" : "layer_norm");
  keep(values);
  // LibTorch's RMS norm computes in float32, and keeps its input so.
  if (workload_.program.keeps_results && bytes_ == 2 && norm.kind == NormSpec::Kind::kRms) keep(2 * values);
}

void OperationBuilder::enter_split() {
  if (layout_.tensor < 2) return;
  if (!layout_.sequence_parallel) return part_.input_gradient.push_back({Kind::kReduce, 0, whole()});
  move_parts(part_.forward);
  move_parts(part_.input_gradient);
  if (!workload_.program.keeps_results) move_parts(part_.weight_gradient);
}

void OperationBuilder::leave_split() {
  if (layout_.tensor < 2) return;
  if (layout_.sequence_parallel) {
    move_parts(part_.forward);
    return move_parts(part_.input_gradient);
  }
  if (workload_.program.keeps_results) part_.forward.push_back({Kind::kElementwise, 0, 2 * whole()});
  part_.forward.push_back({Kind::kReduce, 0, whole()});
}

void OperationBuilder::residual(double dropout) {
  const double values = tokens_between_ * hidden_, mask = workload_.program.mask_bytes * values;
  if (dropout > 0) {
    elementwise(2 * bytes_ * values + mask, 2 * bytes_ * values + mask);
    keep(mask);
  }
  elementwise(3 * bytes_ * values, 2 * bytes_ * values);
}

void OperationBuilder::move_parts(std::vector<Operation>& operations) const {
  operations.push_back({Kind::kHalfReduce, 0, whole()});
  if (workload_.program.keeps_results && layout_.microbatch > 1)
    operations.push_back({Kind::kElementwise, 0, 2 * (whole() + whole() / layout_.tensor)});
}

// Of each query head with all keys that it meets. The backward computes both products twice, and a fused core its
// scores once more.
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
      // All ranks' keys and values are kept, in place of this one's.
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
    keep_for_core(4 * tokens_ * heads);  // the logarithm of each row's sum, in float32
    if (program.keeps_results) keep_for_core(bytes_ * tokens_ * heads * value);
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
    return product(tokens_, hidden_, (heads + 2 * keys) * size, bytes_ * tokens_between_ * hidden_, attention.bias);
  const models::LatentSpec& latent = *attention.latent;
  const double kv_a_proj = as_double(latent.key_rank + latent.rope);
  const double queries = heads * size, q_a_proj = as_double(latent.query_rank);
  if (latent.query_rank > 0) {
    product(tokens_, hidden_, q_a_proj, bytes_ * tokens_between_ * hidden_);
    product(tokens_, q_a_proj, queries, 2 * bytes_ * tokens_ * q_a_proj);
  } else {
    product(tokens_, hidden_, queries, bytes_ * tokens_between_ * hidden_);
  }
  product(tokens_, hidden_, kv_a_proj, 0);
  product(tokens_, as_double(latent.key_rank), heads * as_double(latent.plain + latent.value),
          2 * bytes_ * tokens_ * kv_a_proj);
}

void OperationBuilder::attention(const AttentionSpec& attention) {
  const double heads = own_heads(attention.heads);
  const double keys = attention.latent ? heads : own_heads(attention.key_heads);
  const double size = as_double(attention.head_size);
  const double value = attention.latent ? as_double(attention.latent->value) : size;
  enter_split();
  projections(attention);
  // Gradients of what was projected together are joined.
  const double projected = bytes_ * tokens_ * (heads * size + keys * (size + value));
  if (attention.rows != models::ProjectionRows::kSeparate && workload_.program.keeps_results)
    part_.input_gradient.push_back({Kind::kElementwise, 0, 2 * projected});
  keep(projected);
  const double turned = bytes_ * tokens_ * (heads + keys) * size;
  if (attention.rotary >= 0) {
    // Of each half a product that is copied into place, and one more that is added to it (nn/rotary.cpp).
    elementwise(7 * turned, 7 * turned);
    if (workload_.program.keeps_results && !attention.latent) keep(turned);
  }
  if (attention.head_norm.exists() || attention.qk_norm.exists() || attention.per_head_norm.exists()) {
    elementwise(2 * turned, 3 * turned);
    keep(turned);
  }
  core(attention);
  product(tokens_, heads * value, hidden_, bytes_ * tokens_ * heads * value, attention.output_bias);
  // As measured: a split layer keeps one whole activation more (tests/trainer/trainer_memory_test.cpp).
  if (layout_.tensor > 1 && workload_.program.keeps_results) keep(bytes_ * tokens_ * hidden_);
  leave_split();
}

// `width`: of this rank.
void OperationBuilder::mlp(double rows, double width, const models::MlpSpec& mlp, bool keeps_input) {
  const double between = mlp.gated ? 2 * width : width;
  product(rows, hidden_, between, keeps_input ? bytes_ * tokens_between_ * hidden_ : 0, mlp.bias);
  keep(bytes_ * rows * between);
  if (mlp.gated && workload_.program.keeps_results) {  // then the product with the gate is an operation of its own
    elementwise(2 * bytes_ * rows * width, 3 * bytes_ * rows * width, mlp.activation);
    elementwise(3 * bytes_ * rows * width, 6 * bytes_ * rows * width);
    keep(bytes_ * rows * width);
  } else {
    elementwise(bytes_ * rows * (between + width), bytes_ * rows * (2 * between + width), mlp.activation);
  }
  hold(bytes_ * (2 * rows * width + tokens_between_ * hidden_));
  product(rows, width, hidden_, bytes_ * rows * width, mlp.bias);
}

// Over no ranks of their own, experts are cut along their width by those of tensor. Else tensor ranks route parts of
// the tokens, and balanced, each rank's experts get as many rows as its tokens have choices.
void OperationBuilder::experts(const models::ExpertsSpec& experts) {
  const bool travels = layout_.expert > 1;
  const double routed = travels ? tokens_ / layout_.tensor : tokens_, rows = routed * as_double(experts.used);
  const double moved = bytes_ * rows * hidden_,
               width = travels ? as_double(experts.width) : part_of(experts.width, layout_.tensor);
  const models::MlpSpec each = {.gated = true, .bias = experts.bias, .activation = experts.activation};
  if (!travels) enter_split();
  product(routed, hidden_, as_double(experts.count), bytes_ * tokens_between_ * hidden_);
  const auto travel = [&] {
    elementwise(2 * moved, 2 * moved);
    keep(moved);
    if (!travels) return;
    part_.forward.push_back({Kind::kExchange, 0, moved});
    part_.input_gradient.push_back({Kind::kExchange, 0, moved});
  };
  travel();
  mlp(rows, width, each, false);
  travel();
  if (!travels) leave_split();
  if (experts.shared_width == 0) return;
  enter_split();
  mlp(tokens_, part_of(experts.shared_width, layout_.tensor), each, false);
  if (experts.shared_gate) product(tokens_, hidden_, 1, 0);
  leave_split();
}

}  // namespace gantry::planner
