#include "gantry/planner/operations.h"

#include <algorithm>

#include "gantry/models/described/model_flops.h"
#include "gantry/planner/operation_builder.h"

namespace gantry::planner {
namespace {

constexpr double kLossBytes = 2.0 * 1024 * 1024;  // tensors/kernels/cross_entropy.h takes rows of so many at a time

double as_double(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

double value_bytes(const std::string& precision) {
  if (precision == "float64") return 8;
  return precision == "float32" ? 4 : 2;
}

PartOperations layer_operations(const Workload& workload, const models::LayerSpec& layer, const Layout& layout) {
  OperationBuilder builder(workload, layout);
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
  OperationBuilder builder(workload, layout);
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
  OperationBuilder builder(workload, layout);
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
