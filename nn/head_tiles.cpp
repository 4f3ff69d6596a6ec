#include "gantry/nn/head_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// Ranges of at most `most` elements; of a multiple of 64 elements if that is possible, for the alignment of columns.
std::vector<Range> ranges_of(std::int64_t size, std::int64_t most) {
  constexpr std::int64_t kAligned = 64;
  const std::int64_t step = most > kAligned ? most / kAligned * kAligned : std::max<std::int64_t>(1, most);
  std::vector<Range> ranges;
  for (std::int64_t begin = 0; begin < size; begin += step) ranges.push_back({begin, std::min(size, begin + step)});
  return ranges;
}

// The largest logit of a row without finite ones. A difference from minus infinity would be NaN.
constexpr double kLowest = std::numeric_limits<float>::lowest();

torch::Tensor gradient_of_leaf(const torch::Tensor& parameter) {
  torch::Tensor gradient;
  give_gradient(parameter, nullptr, [&](torch::Tensor& into) { gradient = into; }, {});
  return gradient;
}

}  // namespace

torch::Tensor logits_of(const torch::Tensor& output, const LogitForm& form) {
  const torch::Tensor scaled = form.scale == 1 ? output : output * form.scale;
  return form.soft_cap > 0 ? (scaled / form.soft_cap).tanh() * form.soft_cap : scaled;
}

Tiles::Tiles(std::int64_t rows, std::int64_t columns, std::int64_t most) {
  const auto side = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::sqrt(static_cast<double>(most))));
  const std::int64_t tile_rows = std::min(rows, columns < side ? most / std::max<std::int64_t>(1, columns) : side);
  of_rows = ranges_of(rows, tile_rows);
  of_columns = ranges_of(columns, most / std::max<std::int64_t>(1, tile_rows));
}

torch::Tensor rows_of(const torch::Tensor& tensor, const Range& rows) {
  return tensor.defined() ? tensor.slice(0, rows.begin, rows.end) : tensor;
}

torch::Tensor columns_in(const torch::Tensor& columns, const Range& rows, const Range& tile) {
  const torch::Tensor local = rows_of(columns, rows) - tile.begin;
  return local.masked_fill((local < 0) | (local >= tile.size()), -1);
}

// In place, because each tile is used once.
torch::Tensor HeadFactors::logits(const Range& rows, const Range& tile) const {
  const auto input = [&](int i) { return rows_of(inputs[i], rows); };
  const auto weight = [&](int i) { return rows_of(weights[i], tile).t(); };
  torch::Tensor made =
      bias.defined() ? at::addmm(rows_of(bias, tile), input(0), weight(0)) : at::mm(input(0), weight(0));
  if (inputs[1].defined()) made.addmm_(input(1), weight(1));
  if (form.scale != 1) made.mul_(form.scale);
  if (form.soft_cap > 0) made.div_(form.soft_cap).tanh_().mul_(form.soft_cap);
  return made;
}

torch::Tensor through_form(const torch::Tensor& gradient, const torch::Tensor& logits, const LogitForm& form) {
  if (form.soft_cap > 0)
    gradient.mul_(logits.to(kernels::sum_type(logits)).div(form.soft_cap).square_().neg_().add_(1));
  return form.scale == 1 ? gradient : gradient.mul_(form.scale);
}

RowSums::RowSums(std::int64_t rows, const torch::TensorOptions& options)
    : largest(torch::full({rows}, kLowest, options)),
      total(torch::zeros({rows}, options)),
      label(torch::zeros({rows}, options)),
      all(torch::zeros({rows}, options)) {}

torch::Tensor RowSums::add(const Range& rows, const torch::Tensor& logits, const torch::Tensor& columns,
                           bool with_all) {
  const std::int64_t width = logits.size(1);
  const torch::Tensor own = kernels::row_maximum(logits, width).clamp_min_(kLowest);
  const torch::Tensor sums = kernels::row_sums(logits, width, own, columns, with_all);
  torch::Tensor most = rows_of(largest, rows);
  const torch::Tensor both = torch::maximum(most, own), factor = (most - both).exp();
  rows_of(total, rows).mul_(factor).add_(sums[0] * (own - both).exp());
  rows_of(label, rows).add_((sums[1] + own).masked_fill(columns < 0, 0));
  if (with_all) rows_of(all, rows).add_(sums[2]).add_(own, static_cast<double>(width));
  most.copy_(both);
  return factor;
}

HeadGradients::HeadGradients(const HeadFactors& factors)
    : factors_(factors),
      of_weights_{gradient_of_leaf(factors.weights[0]), gradient_of_leaf(factors.weights[1])},
      of_bias_(gradient_of_leaf(factors.bias)) {}

void HeadGradients::add(const torch::Tensor& gradient, const Range& rows, const Range& tile) {
  for (int i = 0; i < 2; ++i)
    if (torch::Tensor into = rows_of(of_weights_[i], tile); into.defined())
      add_product(into, gradient.t(), rows_of(factors_.inputs[i], rows));
  if (of_bias_.defined()) rows_of(of_bias_, tile).add_(gradient.sum(0, false, of_bias_.scalar_type()));
}

void add_input_gradient(const torch::Tensor& into, const torch::Tensor& gradient, const torch::Tensor& weight,
                        const Range& rows, const Range& tile) {
  if (torch::Tensor part = rows_of(into, rows); part.defined()) add_product(part, gradient, rows_of(weight, tile));
}

torch::Tensor tile_gradient(const HeadFactors& factors, const kernels::LossGradient& loss, const Range& rows,
                            const Range& tile) {
  const torch::Tensor logits = factors.logits(rows, tile);
  return through_form(kernels::loss_gradient(logits, {.width = tile.size(),
                                                      .largest = rows_of(loss.largest, rows),
                                                      .total = rows_of(loss.total, rows),
                                                      .labels = columns_in(loss.labels, rows, tile),
                                                      .weight = rows_of(loss.weight, rows),
                                                      .scale = rows_of(loss.scale, rows),
                                                      .of_label = loss.of_label,
                                                      .of_all = loss.of_all}),
                      logits, factors.form);
}

}  // namespace gantry::nn
