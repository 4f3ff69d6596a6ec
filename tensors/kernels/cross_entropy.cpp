#include "gantry/tensors/kernels/cross_entropy.h"

#include <algorithm>
#include <limits>

#include <torch/library.h>

#include "gantry/tensors/aligned_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {
namespace {

// Number of rows in a block, so that its copy in sum_type stays in the processor's caches. The blocks are
// computed by LibTorch's operators, because these are vectorised for every processor.
std::int64_t rows_at_once(std::int64_t width) {
  constexpr std::int64_t kBlockElements = 1 << 19;
  return std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, width));
}

template <class Body>
void for_each_block(const at::Tensor& logits, std::int64_t width, Body body) {
  const std::int64_t rows = logits.size(0), at_once = rows_at_once(width);
  for (std::int64_t begin = 0; begin < rows; begin += at_once) body(begin, std::min(at_once, rows - begin));
}

// Logits minus the largest one of their row.
at::Tensor shifted(const at::Tensor& logits, std::int64_t begin, std::int64_t rows, std::int64_t width,
                   const at::Tensor& largest) {
  const at::Tensor block = logits.narrow(0, begin, rows).narrow(1, 0, width).to(largest.scalar_type());
  return block - largest.narrow(0, begin, rows).unsqueeze(1);
}

at::Tensor& row_maximum_on_cpu(at::Tensor& out, const at::Tensor& logits, std::int64_t width) {
  if (width == 0) return out.fill_(-std::numeric_limits<double>::infinity());
  return out.copy_(std::get<0>(logits.narrow(1, 0, width).max(1)));
}

at::Tensor& row_sums_on_cpu(at::Tensor& out, const at::Tensor& logits, std::int64_t width, const at::Tensor& largest,
                            const at::Tensor& labels, bool with_all) {
  if (width == 0 || !with_all) out.zero_();
  if (width == 0) return out;
  const at::Tensor columns = labels.clamp_min(0).unsqueeze(1), elsewhere = labels < 0;
  for_each_block(logits, width, [&](std::int64_t begin, std::int64_t rows) {
    at::Tensor numbers = shifted(logits, begin, rows, width, largest);
    const at::Tensor sums = out.narrow(1, begin, rows);
    sums[1].copy_(numbers.gather(1, columns.narrow(0, begin, rows)).squeeze(1));
    sums[1].masked_fill_(elsewhere.narrow(0, begin, rows), 0);
    if (with_all) sums[2].copy_(numbers.sum(1));
    sums[0].copy_(numbers.exp_().sum(1));
  });
  return out;
}

at::Tensor& loss_gradient_on_cpu(at::Tensor& out, const at::Tensor& logits, std::int64_t width,
                                 const at::Tensor& largest, const at::Tensor& total, const at::Tensor& labels,
                                 const std::optional<at::Tensor>& weight, const at::Tensor& scale, double of_label,
                                 double of_all) {
  if (width < out.size(1)) out.narrow(1, width, out.size(1) - width).zero_();
  if (width == 0) return out;
  const at::Tensor columns = labels.clamp_min(0).unsqueeze(1);
  const at::Tensor taken = ((labels >= 0).to(largest.scalar_type()) * -of_label).unsqueeze(1);
  for_each_block(logits, width, [&](std::int64_t begin, std::int64_t rows) {
    at::Tensor numbers = shifted(logits, begin, rows, width, largest).exp_();
    numbers.div_(total.narrow(0, begin, rows).unsqueeze(1));
    if (weight) numbers.mul_(weight->narrow(0, begin, rows).unsqueeze(1));
    if (of_all != 0) numbers.sub_(of_all);
    numbers.scatter_add_(1, columns.narrow(0, begin, rows), taken.narrow(0, begin, rows));
    numbers.mul_(scale.narrow(0, begin, rows).unsqueeze(1));
    out.narrow(0, begin, rows).narrow(1, 0, width).copy_(numbers);
  });
  return out;
}

// The meta device: there is nothing to compute.
at::Tensor& no_maximum(at::Tensor& out, const at::Tensor&, std::int64_t) { return out; }
at::Tensor& no_sums(at::Tensor& out, const at::Tensor&, std::int64_t, const at::Tensor&, const at::Tensor&, bool) {
  return out;
}
at::Tensor& no_gradient(at::Tensor& out, const at::Tensor&, std::int64_t, const at::Tensor&, const at::Tensor&,
                        const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&, double, double) {
  return out;
}

template <class Call>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Call>();
}

// The kernels require adjacent columns, but the stride between rows is arbitrary.
at::Tensor with_close_columns(const at::Tensor& logits) {
  return logits.size(1) <= 1 || logits.stride(1) == 1 ? logits : logits.contiguous();
}

}  // namespace

torch::ScalarType sum_type(const torch::Tensor& logits) {
  return logits.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Tensor row_maximum(const torch::Tensor& logits, std::int64_t width) {
  static const auto kOperator = find_operator<decltype(row_maximum_on_cpu)>("gantry::row_maximum_");
  torch::Tensor out = torch::empty({logits.size(0)}, logits.options().dtype(sum_type(logits)));
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (out.numel() > 0) kOperator.call(out, with_close_columns(logits), width);
  return out;
}

torch::Tensor row_sums(const torch::Tensor& logits, std::int64_t width, const torch::Tensor& largest,
                       const torch::Tensor& labels, bool with_all) {
  static const auto kOperator = find_operator<decltype(row_sums_on_cpu)>("gantry::row_sums_");
  torch::Tensor out = torch::empty({3, logits.size(0)}, largest.options());
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (out.numel() > 0) kOperator.call(out, with_close_columns(logits), width, largest, labels, with_all);
  return out;
}

torch::Tensor loss_gradient(const torch::Tensor& logits, const LossGradient& terms) {
  static const auto kOperator = find_operator<decltype(loss_gradient_on_cpu)>("gantry::loss_gradient_");
  torch::Tensor out = empty_aligned_rows(logits.size(0), logits.size(1), logits.options().requires_grad(false));
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  const auto weight = terms.weight.defined() ? std::optional(terms.weight) : std::nullopt;
  if (out.numel() > 0)
    kOperator.call(out, with_close_columns(logits), terms.width, terms.largest, terms.total, terms.labels, weight,
                   terms.scale, terms.of_label, terms.of_all);
  return out;
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def("row_maximum_(Tensor(a!) out, Tensor logits, int width) -> Tensor(a!)");
  library.def(
      "row_sums_(Tensor(a!) out, Tensor logits, int width, Tensor largest, Tensor labels, bool with_all) -> "
      "Tensor(a!)");
  library.def(
      "loss_gradient_(Tensor(a!) out, Tensor logits, int width, Tensor largest, Tensor total, Tensor labels, "
      "Tensor? weight, Tensor scale, float of_label, float of_all) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) {
  library.impl("row_maximum_", &row_maximum_on_cpu);
  library.impl("row_sums_", &row_sums_on_cpu);
  library.impl("loss_gradient_", &loss_gradient_on_cpu);
}

TORCH_LIBRARY_IMPL(gantry, Meta, library) {
  library.impl("row_maximum_", &no_maximum);
  library.impl("row_sums_", &no_sums);
  library.impl("loss_gradient_", &no_gradient);
}

}  // namespace gantry::kernels
