#include "gantry/comm/device_sum.h"

#include <algorithm>

#include <torch/library.h>

#include "gantry/comm/reduce_kernels.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

at::Tensor& reduce_on_cpu(at::Tensor& out, at::TensorList terms, std::int64_t op) {
  std::vector<const void*> inputs;
  for (const at::Tensor& term : terms) inputs.push_back(term.const_data_ptr());
  reduce_span(out.data_ptr(), inputs.data(), static_cast<int>(inputs.size()), out.numel(), out.scalar_type(),
              static_cast<ReduceOp>(op));
  return out;
}

}  // namespace

void reduce_by_rank(torch::Tensor& out, const std::vector<torch::Tensor>& terms, ReduceOp op) {
  static const auto kOperator =
      c10::Dispatcher::singleton().findSchemaOrThrow("gantry::reduce_by_rank_", "").typed<decltype(reduce_on_cpu)>();
  const bool fits =
      !terms.empty() && out.is_contiguous() && std::all_of(terms.begin(), terms.end(), [&](const auto& term) {
        return term.is_contiguous() && term.numel() == out.numel() && term.scalar_type() == out.scalar_type();
      });
  if (!fits)
    throw InternalError({"sum over ranks",
                         std::to_string(terms.size()) + " terms do not fit the result " + describe(out),
                         "contiguous terms of its type and size", ""});
  if (out.numel() == 0) return;
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  kOperator.call(out, terms, static_cast<std::int64_t>(op));
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def("reduce_by_rank_(Tensor(a!) out, Tensor[] terms, int op) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) { library.impl("reduce_by_rank_", &reduce_on_cpu); }

}  // namespace gantry
