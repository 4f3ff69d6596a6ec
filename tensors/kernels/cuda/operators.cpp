// The operators of tensors/kernels for tensors of CUDA devices, built if CUDA's compiler is found.
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/add_rows.h"
#include "gantry/tensors/kernels/cuda/launches.h"
#include "gantry/tensors/kernels/draw.h"
#include "gantry/tensors/kernels/rotate.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

Element element_of(const at::Tensor& tensor, const char* what) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Element::kFloat32;
    case at::kDouble:
      return Element::kFloat64;
    case at::kHalf:
      return Element::kFloat16;
    case at::kBFloat16:
      return Element::kBFloat16;
    default:
      throw UsageError({what, "the tensors have the type " + dtype_name(tensor.scalar_type()), "a floating-point type",
                        "convert them first"});
  }
}

// The cudaStream_t of this thread's current stream on the tensor's device.
void* stream_of(const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return guard.getStreamNativeHandle(guard.getStream(tensor.device()));
}

void check(const char* error, const char* what) {
  if (error)
    throw ResourceError({what, std::string("CUDA reports: ") + error, "a kernel for this device",
                         "see docs/gpu.md for the devices that Gantry is built for"});
}

at::Tensor& draw_on_cuda(at::Tensor& out, at::IntArrayRef in_full, std::int64_t first, std::int64_t law, double a,
                         double b, std::int64_t seed, std::int64_t stream) {
  const c10::DeviceGuard on_device(out.device());
  const Drawn drawn{static_cast<Law>(law), a, b, static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream)};
  check(launch_draw(out.data_ptr(), element_of(out, "random numbers"), box_of(out, first, in_full), out.numel(), drawn,
                    stream_of(out)),
        "random numbers");
  return out;
}

Rows rows_of(const at::Tensor& logits, std::int64_t width) {
  return {logits.const_data_ptr(), element_of(logits, "cross entropy"),
          logits.size(0),          logits.size(1),
          logits.stride(0),        width};
}

at::Tensor& row_maximum_on_cuda(at::Tensor& out, const at::Tensor& logits, std::int64_t width) {
  const c10::DeviceGuard on_device(out.device());
  check(launch_row_maximum(out.data_ptr(), rows_of(logits, width), stream_of(out)), "cross entropy");
  return out;
}

at::Tensor& row_sums_on_cuda(at::Tensor& out, const at::Tensor& logits, std::int64_t width, const at::Tensor& largest,
                             const at::Tensor& labels, bool) {
  const c10::DeviceGuard on_device(out.device());
  const at::Tensor close = largest.contiguous(), columns = labels.contiguous();
  check(launch_row_sums(out.data_ptr(), rows_of(logits, width), close.const_data_ptr(),
                        columns.const_data_ptr<std::int64_t>(), stream_of(out)),
        "cross entropy");
  return out;
}

at::Tensor& loss_gradient_on_cuda(at::Tensor& out, const at::Tensor& logits, std::int64_t width,
                                  const at::Tensor& largest, const at::Tensor& total, const at::Tensor& labels,
                                  const std::optional<at::Tensor>& weight, const at::Tensor& scale, double of_label,
                                  double of_all) {
  const c10::DeviceGuard on_device(out.device());
  const auto close = [](const at::Tensor& tensor) { return tensor.contiguous(); };
  const at::Tensor all[] = {close(largest), close(total), close(scale), close(labels),
                            weight ? close(*weight) : at::Tensor()};
  const GradientTerms terms{.largest = all[0].const_data_ptr(),
                            .total = all[1].const_data_ptr(),
                            .scale = all[2].const_data_ptr(),
                            .weight = weight ? all[4].const_data_ptr() : nullptr,
                            .labels = all[3].const_data_ptr<std::int64_t>(),
                            .of_label = of_label,
                            .of_all = of_all,
                            .out_stride = out.stride(0)};
  check(launch_loss_gradient(out.data_ptr(), rows_of(logits, width), terms, stream_of(out)), "cross entropy");
  return out;
}

at::Tensor& add_rows_on_cuda(at::Tensor& table, const at::Tensor& index, const at::Tensor& rows) {
  const c10::DeviceGuard on_device(table.device());
  const auto [to, from] = index.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const SortedRows sorted = sorted_rows(table, to, from, rows);
  check(launch_add_rows(table.data_ptr(), element_of(table, "rows of a table"), rows.const_data_ptr(),
                        element_of(rows, "rows of a table"), sorted, stream_of(table)),
        "rows of a table");
  return table;
}

at::Tensor& rotate_on_cuda(at::Tensor& out, const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine,
                           bool adjacent, bool back) {
  const c10::DeviceGuard on_device(out.device());
  check(launch_rotate(out.data_ptr(), element_of(out, "rotation of heads"),
                      {heads.const_data_ptr(), cosine.const_data_ptr(), sine.const_data_ptr()},
                      rotated_heads(out, heads, cosine, adjacent, back), stream_of(out)),
        "rotation of heads");
  return out;
}

// Contiguous matrices are passed as one row, so that the kernel divides less often.
GatedOperands gated_operands(const at::Tensor& gate, const at::Tensor& values, bool in_one_row) {
  const bool one = in_one_row && gate.is_contiguous() && values.is_contiguous();
  return {.gate = gate.const_data_ptr(),
          .values = values.const_data_ptr(),
          .type = element_of(gate, "gates"),
          .rows = one ? 1 : gate.size(0),
          .columns = one ? gate.numel() : gate.size(1),
          .gate_stride = one ? 0 : gate.stride(0),
          .values_stride = one ? 0 : values.stride(0)};
}

at::Tensor& gated_on_cuda(at::Tensor& out, const at::Tensor& gate, const at::Tensor& values, std::int64_t function) {
  const c10::DeviceGuard on_device(out.device());
  check(launch_gated(out.data_ptr(), out.stride(0), gated_operands(gate, values, out.is_contiguous()),
                     static_cast<GateFunction>(function), stream_of(out)),
        "gates");
  return out;
}

void gated_backward_on_cuda(at::Tensor& of_gate, at::Tensor& of_values, const at::Tensor& gradient,
                            const at::Tensor& gate, const at::Tensor& values, std::int64_t function) {
  const c10::DeviceGuard on_device(of_gate.device());
  const bool in_one_row = of_gate.is_contiguous() && of_values.is_contiguous() && gradient.is_contiguous();
  const GatedGradients gradients{.gate = of_gate.data_ptr(),
                                 .values = of_values.data_ptr(),
                                 .out = gradient.const_data_ptr(),
                                 .gate_stride = of_gate.stride(0),
                                 .values_stride = of_values.stride(0),
                                 .out_stride = gradient.stride(0)};
  check(launch_gated_backward(gradients, gated_operands(gate, values, in_one_row), static_cast<GateFunction>(function),
                              stream_of(of_gate)),
        "gates");
}

ReducedType reduced_type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kLong:
      return ReducedType::kInt64;
    case at::kInt:
      return ReducedType::kInt32;
    case at::kByte:
      return ReducedType::kUInt8;
    case at::kDouble:
      return ReducedType::kFloat64;
    case at::kHalf:
      return ReducedType::kFloat16;
    case at::kBFloat16:
      return ReducedType::kBFloat16;
    case at::kFloat:
      return ReducedType::kFloat32;
    default:
      throw UsageError({"reduction", "the tensors have the type " + dtype_name(tensor.scalar_type()),
                        "a floating or integer type", "convert them first"});
  }
}

at::Tensor& reduce_on_cuda(at::Tensor& out, at::TensorList terms, std::int64_t how) {
  const c10::DeviceGuard on_device(out.device());
  const bool is_low = out.scalar_type() == at::kHalf || out.scalar_type() == at::kBFloat16;
  at::Tensor running;
  if (terms.size() > Terms::kMost) running = at::empty_like(out, is_low ? at::kFloat : out.scalar_type());
  std::vector<const void*> memory;
  for (const at::Tensor& term : terms) memory.push_back(term.const_data_ptr());
  const Reduced reduced{.out = out.data_ptr(),
                        .running = running.defined() ? running.data_ptr() : nullptr,
                        .type = reduced_type_of(out),
                        .how = static_cast<Reduction>(how),
                        .terms = memory.data(),
                        .count = static_cast<int>(memory.size()),
                        .elements = out.numel()};
  check(launch_reduce(reduced, stream_of(out)), "sum over ranks");
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(gantry, CUDA, library) {
  library.impl("draw_", &draw_on_cuda);
  library.impl("row_maximum_", &row_maximum_on_cuda);
  library.impl("row_sums_", &row_sums_on_cuda);
  library.impl("loss_gradient_", &loss_gradient_on_cuda);
  library.impl("add_rows_", &add_rows_on_cuda);
  library.impl("reduce_by_rank_", &reduce_on_cuda);
  library.impl("rotate_", &rotate_on_cuda);
  library.impl("gated_", &gated_on_cuda);
  library.impl("gated_backward_", &gated_backward_on_cuda);
}

}  // namespace gantry::kernels
