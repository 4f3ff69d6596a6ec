#include "gantry/planner/operations.h"

#include <algorithm>
#include <cmath>

#include "gantry/models/described/model_flops.h"
#include "gantry/planner/context_operations.h"

namespace gantry::planner {
namespace {

using Kind = Operation::Kind;
using models::AttentionSpec;
using models::LayerSpec;
using models::NormSpec;

constexpr double kLossBytes = 2.0 * 1024 * 1024;  // tensors/kernels/cross_entropy.h takes rows of so many at a time

double as_double(std::int64_t value) { return static_cast<double>(value); }
double part_of(std::int64_t whole, int ranks) { return std::ceil(as_double(whole) / ranks); }

// Adds forward and backward of one thing at a time.
class Builder {
 public:
  Builder(const Workload& workload, const Layout& layout)
      : workload_(workload),
        layout_(layout),
        bytes_(value_bytes(workload.precision)),
        tokens_(as_double(workload.sequence) / layout.context * layout.microbatch),
        tokens_between_(layout.sequence_parallel ? tokens_ / layout.tensor : tokens_),
        hidden_(as_double(workload.model.hidden)) {}

  PartOperations take() { return std::move(part_); }
  double bytes() const { return bytes_; }
  double tokens() const { return tokens_; }
  double tokens_between() const { return tokens_between_; }

  // rows x in times in x out.
  void product(double rows, double in, double out, double kept_input, bool bias = false) {
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
  // So many values read and written in the forward, and in the backward.
  void elementwise(double forward_bytes, double backward_bytes, const std::string& name = "") {
    part_.forward.push_back({Kind::kElementwise, 0, forward_bytes, name});
    part_.input_gradient.push_back({Kind::kElementwise, 0, backward_bytes, name});
  }
  void keep(double bytes) { part_.kept += bytes; }
  void keep_for_core(double bytes) { part_.kept += bytes, part_.kept_core += bytes; }
  void hold(double bytes) {
    if (workload_.program.keeps_results) part_.working = std::max(part_.working, bytes);
  }
  void end_attention() { part_.kept_attention = part_.kept; }
  void keep_input() { part_.kept_inputs += bytes_ * tokens_between_ * hidden_; }

  void norm(const NormSpec& norm) {
    if (!norm.exists()) return;
    const double values = tokens_between_ * hidden_ * bytes_;
    elementwise(2 * values, 3 * values, norm.kind == NormSpec::Kind::kRms ? "rms_norm" : "layer_norm");
    keep(values);
    // LibTorch's RMS norm computes in float32, and keeps its input so.
    if (workload_.program.keeps_results && bytes_ == 2 && norm.kind == NormSpec::Kind::kRms) keep(2 * values);
  }
  // Into what tensor ranks split: with sequence parallelism the parts are gathered, and once more for the weights'
  // gradients, unless the whole is kept.
  void enter_split() {
    if (layout_.tensor < 2) return;
    if (!layout_.sequence_parallel) return part_.input_gradient.push_back({Kind::kReduce, 0, whole()});
    move_parts(part_.forward);
    move_parts(part_.input_gradient);
    if (!workload_.program.keeps_results) move_parts(part_.weight_gradient);
  }
  // Gantry sums a copy (nn/autograd_collectives.cpp).
  void leave_split() {
    if (layout_.tensor < 2) return;
    if (layout_.sequence_parallel) {
      move_parts(part_.forward);
      return move_parts(part_.input_gradient);
    }
    if (workload_.program.keeps_results) part_.forward.push_back({Kind::kElementwise, 0, 2 * whole()});
    part_.forward.push_back({Kind::kReduce, 0, whole()});
  }
  // What a part adds to the residual stream, with its dropout.
  void residual(double dropout) {
    const double values = tokens_between_ * hidden_, mask = workload_.program.mask_bytes * values;
    if (dropout > 0) {
      elementwise(2 * bytes_ * values + mask, 2 * bytes_ * values + mask);
      keep(mask);
    }
    elementwise(3 * bytes_ * values, 2 * bytes_ * values);
  }
  void attention(const AttentionSpec& attention);
  void mlp(double rows, double width, const models::MlpSpec& mlp, bool keeps_input);
  void experts(const models::ExpertsSpec& experts);

 private:
  double whole() const { return bytes_ * tokens_ * hidden_; }
  // Parts of the tokens are gathered, or sums of them scattered. Gantry's collectives do so by rows: of several samples
  // the part and the whole are copied (comm/process_group.cpp).
  void move_parts(std::vector<Operation>& operations) const {
    operations.push_back({Kind::kHalfReduce, 0, whole()});
    if (workload_.program.keeps_results && layout_.microbatch > 1)
      operations.push_back({Kind::kElementwise, 0, 2 * (whole() + whole() / layout_.tensor)});
  }
  void core(const AttentionSpec& attention);
  void projections(const AttentionSpec& attention);
  double own_heads(std::int64_t heads) const { return part_of(heads, layout_.tensor); }

  const Workload& workload_;
  const Layout& layout_;
  double bytes_, tokens_, tokens_between_, hidden_;
  PartOperations part_;
};

// Of each query head with all keys that it meets. The backward computes both products twice, and a fused core its
// scores once more.
void Builder::core(const AttentionSpec& attention) {
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

void Builder::projections(const AttentionSpec& attention) {
  const double heads = own_heads(attention.heads), keys = own_heads(attention.key_heads);
  const double size = as_double(attention.head_size);
  if (!attention.latent)
    return product(tokens_, hidden_, (heads + 2 * keys) * size, bytes_ * tokens_between_ * hidden_, attention.bias);
  const models::LatentSpec& latent = *attention.latent;
  const double narrow_key = as_double(latent.key_rank + latent.turning);
  const double queries = heads * size, narrow_query = as_double(latent.query_rank);
  if (latent.query_rank > 0) {
    product(tokens_, hidden_, narrow_query, bytes_ * tokens_between_ * hidden_);
    product(tokens_, narrow_query, queries, 2 * bytes_ * tokens_ * narrow_query);
  } else {
    product(tokens_, hidden_, queries, bytes_ * tokens_between_ * hidden_);
  }
  product(tokens_, hidden_, narrow_key, 0);
  product(tokens_, as_double(latent.key_rank), heads * as_double(latent.plain + latent.value),
          2 * bytes_ * tokens_ * narrow_key);
}

void Builder::attention(const AttentionSpec& attention) {
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
  if (attention.head_norm.exists() || attention.wide_norm.exists() || attention.own_norm.exists()) {
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
void Builder::mlp(double rows, double width, const models::MlpSpec& mlp, bool keeps_input) {
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
void Builder::experts(const models::ExpertsSpec& experts) {
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

}  // namespace

double value_bytes(const std::string& precision) {
  if (precision == "float64") return 8;
  return precision == "float32" ? 4 : 2;
}

PartOperations layer_operations(const Workload& workload, const LayerSpec& layer, const Layout& layout) {
  Builder builder(workload, layout);
  const double dropout = workload.model.output_dropout;
  builder.norm(layer.input);
  builder.keep_input();
  builder.attention(layer.attention);
  builder.norm(layer.after_attention);
  builder.residual(dropout);
  builder.end_attention();
  builder.norm(layer.before_mlp);
  builder.keep_input();
  if (layer.experts) {
    builder.experts(*layer.experts);
  } else {
    builder.enter_split();
    builder.mlp(builder.tokens(), part_of(layer.mlp.width, layout.tensor), layer.mlp, true);
    builder.leave_split();
  }
  builder.norm(layer.after_mlp);
  builder.residual(dropout);
  PartOperations part = builder.take();
  part.kept_whole = builder.bytes() * builder.tokens_between() * as_double(workload.model.hidden);
  return part;
}

PartOperations embedding_operations(const Workload& workload, const Layout& layout) {
  Builder builder(workload, layout);
  const double values = builder.bytes() * builder.tokens() * as_double(workload.model.hidden);
  builder.elementwise(3 * values, 3 * values);
  // Rows of words that other ranks have are made zeros.
  if (layout.tensor > 1 && workload.program.keeps_results) builder.elementwise(2 * values, 2 * values);
  builder.leave_split();
  if (models::embedding_weights(workload.model) > 0) {
    const double width = as_double(workload.model.embedding_width);
    builder.product(builder.tokens_between(), width, as_double(workload.model.hidden),
                    builder.bytes() * builder.tokens_between() * width);
  }
  builder.norm(workload.model.embedding_norm);
  if (workload.model.embedding_dropout > 0) {
    const double entries = builder.tokens_between() * as_double(workload.model.hidden);
    builder.elementwise(2 * builder.bytes() * entries, 2 * builder.bytes() * entries);
    builder.keep(workload.program.mask_bytes * entries);
  }
  return builder.take();
}

// Logits as they come, and in float32: each is read and written twice on the way to the loss and once on the way back.
PartOperations head_operations(const Workload& workload, const Layout& layout) {
  Builder builder(workload, layout);
  const double hidden = as_double(workload.model.hidden), words = part_of(workload.model.vocabulary, layout.tensor);
  builder.norm(workload.model.norm);
  const double columns = as_double(models::embedding_columns(workload.model));
  if (models::embedding_weights(workload.model) > 0)
    builder.product(builder.tokens_between(), hidden, columns, builder.bytes() * builder.tokens_between() * hidden);
  builder.enter_split();
  builder.product(builder.tokens(), columns, words, builder.bytes() * builder.tokens_between() * columns);
  const double logits = builder.tokens() * words;
  builder.elementwise((builder.bytes() + 12) * logits, (builder.bytes() + 8) * logits, "loss");
  builder.keep(4 * logits);
  // Their gradient, which is made some MiB at a time, and that of what they are made of.
  const double values = builder.tokens_between() * hidden, wide = builder.bytes() == 2 ? 4 * values : 0;
  builder.hold(builder.bytes() * (logits + values) + wide + std::min(kLossBytes, 4 * logits) +
               (layout.tensor > 1 ? builder.bytes() * builder.tokens() * hidden : 0));
  return builder.take();
}

}  // namespace gantry::planner
