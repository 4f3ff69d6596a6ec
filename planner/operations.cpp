#include "gantry/planner/operations.h"

#include <cmath>

#include "gantry/core/config/logit_limit.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/planner/tower.h"

namespace gantry::planner {
namespace {

// Size of the pieces of rows that tensors/kernels/cross_entropy.h processes.
constexpr double kLossBytes = 2.0 * 1024 * 1024;

}  // namespace

double value_bytes(const std::string& precision) {
  if (precision == "float64") return 8;
  return precision == "float32" ? 4 : 2;
}

double largest_part(std::int64_t size, int ranks) { return std::ceil(as_double(size) / ranks); }

void OperationBuilder::product(double rows, double in, double out, double kept_input, bool bias) {
  const double flops = 2 * rows * in * out;
  const double moved = bytes_ * (rows * in + in * out + rows * out);
  part_.forward.push_back({Operation::Kind::kProduct, flops, moved});
  part_.input_gradient.push_back({Operation::Kind::kProduct, flops, moved});
  // The gradient is accumulated in place.
  part_.weight_gradient.push_back(
      {Operation::Kind::kProduct, flops,
       bytes_ * (rows * in + rows * out) + 2 * workload_.program.gradient_bytes * in * out});
  keep(kept_input);
  if (!bias || !workload_.program.keeps_results) return;
  // The bias is copied into the output before the product is added, and its gradient is a sum over rows: both are
  // separate operations.
  part_.forward.push_back({Operation::Kind::kElementwise, 0, 2 * bytes_ * rows * out});
  part_.weight_gradient.push_back({Operation::Kind::kElementwise, 0, bytes_ * rows * out});
}

void OperationBuilder::again(double rows, double in, double out) {
  part_.input_gradient.push_back(
      {Operation::Kind::kProduct, 2 * rows * in * out, bytes_ * (rows * in + in * out + rows * out)});
}

void OperationBuilder::join_backwards() {
  auto& joined = part_.input_gradient;
  joined.insert(joined.end(), part_.weight_gradient.begin(), part_.weight_gradient.end());
  part_.weight_gradient.clear();
}

void OperationBuilder::norm(const models::NormSpec& norm) {
  if (!norm.exists()) return;
  const double values = tokens_between_ * hidden_ * bytes_;
  elementwise(2 * values, 3 * values, norm.kind == models::NormSpec::Kind::kRms ? "rms_norm" : "layer_norm");
  keep(values);
  // LibTorch's RMS norm computes in float32 and keeps its input in float32.
  if (workload_.program.keeps_results && bytes_ == 2 && norm.kind == models::NormSpec::Kind::kRms) keep(2 * values);
}

void OperationBuilder::enter_split() {
  if (layout_.tensor < 2) return;
  if (!layout_.sequence_parallel)
    return part_.input_gradient.push_back({Operation::Kind::kReduce, 0, activation_bytes()});
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
  if (workload_.program.keeps_results)
    part_.forward.push_back({Operation::Kind::kElementwise, 0, 2 * activation_bytes()});
  part_.forward.push_back({Operation::Kind::kReduce, 0, activation_bytes()});
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
  operations.push_back({Operation::Kind::kHalfReduce, 0, activation_bytes()});
  if (workload_.program.keeps_results && layout_.microbatch > 1)
    operations.push_back(
        {Operation::Kind::kElementwise, 0, 2 * (activation_bytes() + activation_bytes() / layout_.tensor)});
}

// See nn/sparse_gate.cpp: mean and deviation of the gates of a token, over all tensor ranks, in float32.
void OperationBuilder::sparse_gate(double rows, double width) {
  const double wide = std::max(4.0, bytes_) * rows * width;
  elementwise(3 * wide, 3 * wide);
  keep(wide);
  if (layout_.tensor == 1) return;
  for (auto* operations : {&part_.forward, &part_.input_gradient})
    for (int i = 0; i < 2; ++i) operations->push_back({Operation::Kind::kReduce, 0, std::max(4.0, bytes_) * rows});
}

void OperationBuilder::mlp(double rows, double width, const models::MlpSpec& mlp, bool keeps_input) {
  const double between = mlp.gated ? 2 * width : width;
  product(rows, hidden_, between, keeps_input ? bytes_ * tokens_between_ * hidden_ : 0, mlp.bias);
  keep(bytes_ * rows * between);
  elementwise(bytes_ * rows * (between + width), bytes_ * rows * (2 * between + width), mlp.activation);
  // On the CPU the multiplication by the values is an operation of its own (see tensors/kernels/gated.cpp).
  if (mlp.gated && workload_.program.keeps_results) elementwise(2 * bytes_ * rows * width, 6 * bytes_ * rows * width);
  // quick_gelu is a product of its input and of a sigmoid, which are both kept.
  if (mlp.activation == "quick_gelu" && workload_.program.keeps_results) keep(bytes_ * rows * width);
  if (mlp.sparsity > 0) sparse_gate(rows, width);
  hold(bytes_ * (2 * rows * width + tokens_between_ * hidden_));
  product(rows, width, hidden_, bytes_ * rows * width, mlp.bias);
}

// Without expert ranks, the tensor ranks shard the experts along their width. With expert ranks, each tensor rank
// routes its part of the tokens. Balanced routing is assumed: the experts of a rank receive one row for each choice of
// its tokens.
void OperationBuilder::experts(const models::ExpertsSpec& experts) {
  const bool exchanges = layout_.expert > 1;
  const double routed = exchanges ? tokens_ / layout_.tensor : tokens_, rows = routed * as_double(experts.used);
  const double moved = bytes_ * rows * hidden_,
               width = exchanges ? as_double(experts.width) : largest_part(experts.width, layout_.tensor);
  const models::MlpSpec each = {.gated = experts.gated, .bias = experts.bias, .activation = experts.activation};
  if (!exchanges) enter_split();
  product(routed, hidden_, as_double(experts.count), bytes_ * tokens_between_ * hidden_);
  const auto move_tokens = [&] {
    elementwise(2 * moved, 2 * moved);
    keep(moved);
    if (!exchanges) return;
    part_.forward.push_back({Operation::Kind::kExchange, 0, moved});
    part_.input_gradient.push_back({Operation::Kind::kExchange, 0, moved});
  };
  move_tokens();
  mlp(rows, width, each, false);
  move_tokens();
  if (!exchanges) leave_split();
  if (experts.shared_width == 0) return;
  enter_split();
  mlp(tokens_, largest_part(experts.shared_width, layout_.tensor), each, false);
  if (experts.shared_gate) product(tokens_, hidden_, 1, 0);
  leave_split();
}

namespace {

// The input of multi-token prediction: the look-up of tokens, the norms of both inputs, and their projection.
void add_mtp_input(OperationBuilder& builder, const Workload& workload) {
  const double hidden = as_double(workload.model.hidden), values = builder.bytes() * builder.tokens() * hidden;
  builder.elementwise(3 * values, 3 * values);
  builder.leave_split();
  builder.norm(workload.model.norm);
  builder.norm(workload.model.norm);
  const double rows = builder.tokens_between();
  builder.product(rows, 2 * hidden, hidden, 2 * builder.bytes() * rows * hidden);
}

// Attention, or the mixer in its place.
void add_attention(OperationBuilder& builder, const models::LayerSpec& layer, double dropout) {
  builder.norm(layer.input);
  builder.keep_input(layer.altup ? layer.altup->streams : 1);
  if (layer.mixer) builder.mixer(*layer.mixer);
  if (layer.has_attention()) builder.attention(layer.attention);
  builder.norm(layer.after_attention);
  builder.residual(dropout);
}

void add_mlp(OperationBuilder& builder, const models::LayerSpec& layer, const Layout& layout, double dropout) {
  builder.norm(layer.before_mlp);
  builder.keep_input(layer.altup ? 1 + layer.altup->streams : 1);
  if (layer.experts) {
    builder.experts(*layer.experts);
  } else {
    builder.enter_split();
    builder.mlp(builder.tokens(), largest_part(layer.mlp.width, layout.tensor), layer.mlp, true);
    builder.leave_split();
  }
  builder.norm(layer.after_mlp);
  builder.residual(dropout);
}

}  // namespace

PartOperations layer_operations(const Workload& workload, const models::LayerSpec& layer, const Layout& layout) {
  OperationBuilder builder(workload, layout);
  const double dropout = workload.model.output_dropout, hidden = as_double(workload.model.hidden);
  if (layer.mtp) add_mtp_input(builder, workload);
  predict_streams(builder, layer, hidden);
  if (!layer.only_mlp) add_attention(builder, layer, dropout);
  add_low_rank(builder, layer, hidden);
  builder.end_attention();
  if (layer.has_mlp) add_mlp(builder, layer, layout, dropout);
  correct_streams(builder, layer, hidden);
  if (layer.mtp) builder.norm(workload.model.norm);
  PartOperations part = builder.take();
  part.kept_layer_input =
      builder.bytes() * builder.tokens_between() * hidden * as_double(layer.altup ? layer.altup->streams : 1);
  return part;
}

PartOperations layer_operations(const Workload& workload, int layer, const Layout& layout) {
  const int tower = models::tower_layers(workload.model);
  if (layer < tower) return tower_layer_operations(workload, layout);
  return layer_operations(workload, workload.model.layers.at(layer - tower), layout);
}

int pipeline_layers(const models::DecoderSpec& model) {
  return models::tower_layers(model) + static_cast<int>(model.layers.size());
}

bool repeats_layer(const models::DecoderSpec& model, int layer) {
  const int tower = models::tower_layers(model);
  if (layer == 0 || layer == tower) return false;
  return layer < tower || model.layers[layer - tower] == model.layers[layer - tower - 1];
}

PartOperations embedding_operations(const Workload& workload, const Layout& layout) {
  OperationBuilder builder(workload, layout);
  const double values = builder.bytes() * builder.tokens() * as_double(workload.model.hidden);
  builder.elementwise(3 * values, 3 * values);
  // Rows of tokens in the vocabulary shards of other ranks are set to zero.
  if (layout.tensor > 1 && workload.program.keeps_results) builder.elementwise(2 * values, 2 * values);
  builder.leave_split();
  if (models::embedding_weights(workload.model) > 0) {
    const double width = as_double(workload.model.embedding_width);
    builder.product(builder.tokens_between(), width, as_double(workload.model.hidden),
                    builder.bytes() * builder.tokens_between() * width);
  }
  embed_streams(builder, workload.model);
  builder.norm(workload.model.embedding_norm);
  if (workload.model.embedding_dropout > 0) {
    const double entries = builder.tokens_between() * as_double(workload.model.hidden);
    builder.elementwise(2 * builder.bytes() * entries, 2 * builder.bytes() * entries);
    builder.keep(workload.program.mask_bytes * entries);
  }
  return builder.take();
}

bool has_tiled_logits(const Workload& workload, const Layout& layout) {
  if (!workload.program.keeps_results || !models::predicts_tokens(workload.model) || workload.keeps_logits)
    return false;
  const int ranks = layout.tensor * (layout.shares_vocabulary ? layout.pipeline : 1);
  const double tokens = as_double(workload.sequence) / layout.context * layout.microbatch;
  return value_bytes(workload.precision) * tokens * largest_part(workload.model.vocabulary, ranks) >
         as_double(kLogitLimit);
}

namespace {

// Logits that are computed in tiles (nn/deferred_logits.h): the backward computes them again, and keeps the largest
// logits, the sums and labels of the rows. Two tiles exist at a time, and gradients are summed in float32 or wider.
void compute_in_tiles(OperationBuilder& builder, double columns, double words) {
  const double wide = std::max(4.0, builder.bytes());
  builder.again(builder.tokens(), columns, words);
  builder.join_backwards();
  builder.keep((3 * wide + 9) * builder.tokens());
  builder.hold(2 * as_double(kLogitLimit) + (builder.bytes() + wide) * builder.tokens() * columns);
}

// The divergence from the teacher (plugins/divergence.cpp), in float32 or wider. The microbatch's part of the teacher's
// logits is kept. The forward has scaled logits, logarithms and terms of both distributions at a time, and with a
// mixture two sums of terms.
void compare_with_teacher(OperationBuilder& builder, double logits, bool mixes) {
  constexpr double kForward = 29, kBackward = 18, kTensors = 7, kTensorsOfMixture = 11;  // tensors like the logits
  const double wide = std::max(4.0, builder.bytes());
  builder.elementwise(kForward * wide * logits, kBackward * wide * logits, "loss");
  builder.keep(builder.bytes() * logits);
  builder.hold((mixes ? kTensorsOfMixture : kTensors) * wide * logits);
}

// The distance of the hidden states, in float32 or wider: the projection, the difference and its square. The
// microbatch's part of the teacher's states is kept.
void compare_hidden_states(OperationBuilder& builder, const Workload& workload, const Layout& layout) {
  const double wide = std::max(4.0, builder.bytes()), states = as_double(workload.teacher->hidden);
  const double own = workload.trained.projected > 0 ? largest_part(workload.teacher->hidden, layout.tensor) : states;
  if (workload.trained.projected > 0)
    builder.product(builder.tokens(), as_double(models::embedding_columns(workload.model)), own, 0);
  builder.elementwise(4 * wide * builder.tokens() * own, 2 * wide * builder.tokens() * own, "loss");
  builder.keep(builder.tokens() * (builder.bytes() * states + wide * own));
}

// Logits in the precision of the model and in float32: both are read and written twice in the forward of the loss and
// once in the backward.
void add_logits(OperationBuilder& builder, const Workload& workload, const Layout& layout) {
  const double hidden = as_double(workload.model.hidden),
               words = largest_part(workload.model.vocabulary, layout.tensor);
  const double columns = as_double(models::embedding_columns(workload.model));
  builder.enter_split();
  builder.product(builder.tokens(), columns, words, builder.bytes() * builder.tokens_between() * columns);
  const double logits = builder.tokens() * words;
  builder.elementwise((builder.bytes() + 12) * logits, (builder.bytes() + 8) * logits, "loss");
  if (has_tiled_logits(workload, layout)) return compute_in_tiles(builder, columns, words);
  builder.keep(4 * logits);
  if (workload.teacher) compare_with_teacher(builder, logits, workload.teacher->mixes);
  if (workload.teacher && workload.teacher->hidden > 0) compare_hidden_states(builder, workload, layout);
  // The gradient of the logits, which is computed in pieces of some MiB, and the gradient of the head's input.
  const double values = builder.tokens_between() * hidden, wide = builder.bytes() == 2 ? 4 * values : 0;
  builder.hold(builder.bytes() * (logits + values) + wide + std::min(kLossBytes, 4 * logits) +
               (layout.tensor > 1 ? builder.bytes() * builder.tokens() * hidden : 0));
}

}  // namespace

// The head, once for the next token and once for each depth of multi-token prediction.
PartOperations head_operations(const Workload& workload, const Layout& layout) {
  OperationBuilder builder(workload, layout);
  const double hidden = as_double(workload.model.hidden);
  merge_streams(builder, workload.model);
  builder.norm(workload.model.norm);
  const double columns = as_double(models::embedding_columns(workload.model));
  if (models::embedding_weights(workload.model) > 0)
    builder.product(builder.tokens_between(), hidden, columns, builder.bytes() * builder.tokens_between() * hidden);
  if (!models::predicts_tokens(workload.model)) return builder.take();  // other heads read one token per sample
  for (int use = 0; use <= models::mtp_depths(workload.model); ++use) add_logits(builder, workload, layout);
  return builder.take();
}

}  // namespace gantry::planner
