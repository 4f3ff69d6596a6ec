#include "gantry/comm/mpi/collective_call.h"

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

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

void CollectiveCall::fill(const Collective& collective, std::uint64_t number) {
  release();
  code = {collective.kind, collective.op};
  root = collective.root;
  sequence = number;
  out = in = nullptr;
  item = 1;
  elements = 0;
  parts.clear();
  other_parts.clear();
  if (!collective.target) return;
  const torch::Tensor& target = *collective.target;
  check_on_cpu(target.device(), name_of(code.kind), "mpi");
  if (collective.in) check_on_cpu(collective.in->device(), name_of(code.kind), "mpi");
  code.dtype = target.scalar_type();
  target_ = target;
  shown_ = collective.brought();
  const torch::Tensor worked_on = packed(target);
  if (!target.is_contiguous()) temporary_ = worked_on;
  kept_out_ = worked_on.storage();
  in = out = static_cast<char*>(worked_on.data_ptr());
  item = static_cast<std::int64_t>(target.element_size());
  elements = target.numel();
  if (collective.in) {
    const torch::Tensor source = packed(*collective.in);
    kept_in_ = source.storage();
    in = static_cast<char*>(source.data_ptr());
  }
  const std::int64_t row = target.dim() > 0 ? row_elements(shown_) : 1;
  if (collective.sizes) scale(parts, *collective.sizes, row);
  if (collective.out_sizes) scale(other_parts, *collective.out_sizes, row);
}

std::string CollectiveCall::describe() const {
  const std::string name = name_of(code.kind);
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
