// The operations of layers with several streams, and of the embeddings of layers (models/altup.h, models/laurel.h,
// models/layer_inputs.h).
#include <algorithm>
#include <vector>

#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

// The `count` coefficients of a token: a norm, a product with the router, and a product with its result.
void route(OperationBuilder& builder, const models::LayerSpec& layer, double hidden, std::int64_t count) {
  const double streams = as_double(layer.altup->streams);
  builder.norm(layer.input);
  builder.product(builder.tokens_between(), hidden, streams, 0);
  builder.product(builder.tokens_between(), streams, as_double(count), 0);
}

double between(const OperationBuilder& builder, double columns) {
  return builder.bytes() * builder.tokens_between() * columns;
}

}  // namespace

void predict_streams(OperationBuilder& builder, const models::LayerSpec& layer, double hidden) {
  if (!layer.altup) return;
  const double all = between(builder, as_double(layer.altup->streams) * hidden);
  route(builder, layer, hidden, layer.altup->streams * layer.altup->streams);
  builder.elementwise(5 * all, 8 * all);  // a product of small matrices for each token, and an addition
  builder.keep(all);
}

void add_low_rank(OperationBuilder& builder, const models::LayerSpec& layer, double hidden) {
  if (layer.laurel_rank == 0) return;
  const double rank = as_double(layer.laurel_rank);
  builder.product(builder.tokens_between(), hidden, rank, 0);
  builder.product(builder.tokens_between(), rank, hidden, between(builder, rank));
  builder.norm(layer.input);
  builder.elementwise(8 * between(builder, hidden), 6 * between(builder, hidden));
}

void correct_streams(OperationBuilder& builder, const models::LayerSpec& layer, double hidden) {
  if (!layer.altup) return;
  const double one = between(builder, hidden), all = as_double(layer.altup->streams) * one;
  route(builder, layer, hidden, layer.altup->streams);
  builder.elementwise(3 * one + 4 * all, 3 * one + 6 * all);
  builder.keep(2 * one);  // the computed stream, and its difference to the prediction
  if (layer.input_width == 0) return;
  const double width = as_double(layer.input_width), entries = between(builder, width);
  builder.product(builder.tokens_between(), hidden, width, one);
  builder.elementwise(5 * entries, 8 * entries);
  builder.keep(2 * entries);
  builder.product(builder.tokens_between(), width, hidden, entries);
  builder.norm(layer.input);
  builder.elementwise(4 * all, 4 * all);
}

void embed_streams(OperationBuilder& builder, const models::DecoderSpec& model) {
  const double hidden = as_double(model.hidden), one = between(builder, hidden);
  for (std::int64_t stream = 1; stream < model.streams; ++stream) {
    builder.product(builder.tokens_between(), hidden, hidden, stream == 1 ? one : 0);
    builder.elementwise(5 * one, 8 * one);
    builder.keep(one);
  }
  if (!model.layer_inputs) return;
  const double columns = as_double(model.layer_inputs->columns()), entries = between(builder, columns);
  builder.product(builder.tokens_between(), hidden, columns, 0);
  builder.elementwise(12 * entries, 12 * entries);  // look-ups, scales, a norm and a sum
  builder.keep(2 * entries);
}

void merge_streams(OperationBuilder& builder, const models::DecoderSpec& model) {
  const double hidden = as_double(model.hidden), one = between(builder, hidden);
  for (std::int64_t stream = 1; stream < model.streams; ++stream) {
    builder.product(builder.tokens_between(), hidden, hidden, one);
    builder.elementwise(6 * one, 8 * one);
    builder.keep(one);
  }
}

double columns_passed(const models::DecoderSpec& model, std::size_t next, int tensor, int token_parts) {
  double columns = as_double(model.streams * model.hidden);
  if (model.layer_inputs)
    columns += as_double(model.layer_inputs->width * (model.layer_inputs->layers - static_cast<std::int64_t>(next)));
  const int main = models::main_layers(model);  // later stages read the outputs of the depths before
  if (static_cast<int>(next) > main) columns += as_double(model.hidden * (static_cast<int>(next) - main));
  std::vector<int> sources;
  for (std::size_t layer = next; layer < model.layers.size(); ++layer) {
    const models::AttentionSpec& attention = model.layers[layer].attention;
    if (attention.keys_of < 0 || attention.keys_of >= static_cast<int>(next) ||
        std::ranges::find(sources, attention.keys_of) != sources.end())
      continue;
    sources.push_back(attention.keys_of);
    columns += 2 * token_parts * largest_part(attention.key_heads, tensor) * as_double(attention.head_size);
  }
  return columns;
}

}  // namespace gantry::planner
