#include "gantry/nn/overlap.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct SummedOverlaps : torch::autograd::Function<SummedOverlaps> {
  // `placement` belongs to the module. The module and its group outlive the graph.
  static Variable forward(AutogradContext* context, const Variable& local, const ShardSpec* placement,
                          ProcessGroup* group) {
    context->saved_data["placement"] = reinterpret_cast<std::int64_t>(placement);
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    return local.view_as(local);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    torch::Tensor sum = gradients[0].clone(at::MemoryFormat::Contiguous);
    sum_overlaps(sum, *reinterpret_cast<const ShardSpec*>(context->saved_data["placement"].toInt()),
                 *reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt()));
    return {sum, {}, {}};
  }
};

}  // namespace

void sum_overlaps(torch::Tensor& local, const ShardSpec& placement, ProcessGroup& group) {
  if (!placement.overlaps()) return;
  const torch::NoGradGuard no_grad;
  const auto ranges = placement.ranges(group.rank());
  std::vector<std::int64_t> shape = local.sizes().vec();
  shape[placement.dim] = placement.segments.back().extent.end;
  torch::Tensor full = torch::zeros(shape, local.options());
  auto each_range = [&](auto&& act) {
    std::int64_t offset = 0;
    for (const Range& range : ranges) {
      torch::Tensor mine = local.narrow(placement.dim, offset, range.size());
      torch::Tensor there = full.narrow(placement.dim, range.begin, range.size());
      act(mine, there);
      offset += range.size();
    }
  };
  each_range([](torch::Tensor& mine, torch::Tensor& there) { there.copy_(mine); });
  group.all_reduce(full).wait();
  each_range([](torch::Tensor& mine, torch::Tensor& there) { mine.copy_(there); });
}

torch::Tensor with_summed_overlaps(const torch::Tensor& local, const ShardSpec& placement, ProcessGroup& group) {
  return placement.overlaps() ? SummedOverlaps::apply(local, &placement, &group) : local;
}

}  // namespace gantry
