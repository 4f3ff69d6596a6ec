#include "gantry/comm/mpi/collective_call.h"

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

void check_on_cpu(const torch::Tensor& tensor, const char* call) {
  if (tensor.device().is_cpu()) return;
  throw UsageError({call, "of a tensor on " + tensor.device().str() + " over mpi", "a CPU tensor",
                    "use comm.backend: nccl, or copy it to the CPU"});
}

namespace {

// Contiguous. The tensor itself where it is: a handle of its own would be an allocation.
torch::Tensor packed(const torch::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : tensor.detach().contiguous();
}

void scale(std::vector<std::int64_t>& out, const Sizes& rows, std::int64_t by) {
  out.clear();
  for (const std::int64_t size : rows) out.push_back(size * by);
}

}  // namespace

void CollectiveCall::fill(const CollectiveArguments& arguments, std::uint64_t number) {
  release();
  code = {arguments.kind, arguments.op};
  root = arguments.root;
  sequence = number;
  out = in = nullptr;
  item = 1;
  elements = 0;
  parts.clear();
  other_parts.clear();
  if (!arguments.target) return;
  const torch::Tensor& target = *arguments.target;
  check_on_cpu(target, collective_name(code.kind));
  if (arguments.in) check_on_cpu(*arguments.in, collective_name(code.kind));
  code.dtype = target.scalar_type();
  target_ = target;
  shown_ = arguments.in ? *arguments.in : target;
  const torch::Tensor worked_on = packed(target);
  if (!target.is_contiguous()) temporary_ = worked_on;
  kept_out_ = worked_on.storage();
  in = out = static_cast<char*>(worked_on.data_ptr());
  item = static_cast<std::int64_t>(target.element_size());
  elements = target.numel();
  if (arguments.in) {
    const torch::Tensor source = packed(*arguments.in);
    kept_in_ = source.storage();
    in = static_cast<char*>(source.data_ptr());
  }
  const std::int64_t row = target.dim() > 0 ? row_elements(shown_) : 1;
  if (arguments.sizes) scale(parts, *arguments.sizes, row);
  if (arguments.out_sizes) scale(other_parts, *arguments.out_sizes, row);
}

std::string CollectiveCall::describe() const {
  const std::string name = collective_name(code.kind);
  return shown_.defined() ? name + " of " + gantry::describe(shown_) : name;
}

void CollectiveCall::give_result() {
  if (temporary_.defined()) {
    const torch::NoGradGuard no_grad;
    target_.copy_(temporary_);
  }
  release();
}

void CollectiveCall::release() {
  target_.reset();
  shown_.reset();
  temporary_.reset();
  kept_out_ = {};
  kept_in_ = {};
}

}  // namespace gantry
