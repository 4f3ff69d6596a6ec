#include "gantry/nn/autograd_collectives.h"

#include <numeric>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Functions save the pointer to the group as an integer. The group outlives the graph.
ProcessGroup& saved_group(AutogradContext* context) {
  return *reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
}
void save_group(AutogradContext* context, ProcessGroup* group) {
  context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
}

// The dim that a function gathers or shards, and the sizes of the shards.
void save_sizes(AutogradContext* context, ProcessGroup* group, std::int64_t dim, const Sizes& sizes) {
  save_group(context, group);
  context->saved_data["dim"] = dim;
  context->saved_data["sizes"] = sizes;
}

torch::Tensor summed(const torch::Tensor& tensor, ProcessGroup& group) {
  torch::Tensor sum = tensor.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum).wait();
  return sum;
}

torch::Tensor own_part(const torch::Tensor& full, ProcessGroup& group, std::int64_t dim, const Sizes& sizes) {
  const std::int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), std::int64_t{0});
  return full.narrow(dim, begin, sizes[group.rank()]).contiguous();
}

// The backward of functions that return this rank's part.
variable_list gathered_gradient(AutogradContext* context, const Variable& gradient) {
  return {all_gather_along(saved_group(context), gradient, static_cast<int>(context->saved_data["dim"].toInt()),
                           context->saved_data["sizes"].toIntVector()),
          {},
          {},
          {}};
}

struct CopyToGroup : torch::autograd::Function<CopyToGroup> {
  static Variable forward(AutogradContext* context, const Variable& input, ProcessGroup* group) {
    save_group(context, group);
    return input.view_as(input);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {summed(gradients[0], saved_group(context)), {}};
  }
};

struct ReduceFromGroup : torch::autograd::Function<ReduceFromGroup> {
  static Variable forward(AutogradContext*, const Variable& input, ProcessGroup* group) {
    return summed(input, *group);
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0], {}}; }
};

struct GatherFromGroup : torch::autograd::Function<GatherFromGroup> {
  static Variable forward(AutogradContext* context, const Variable& input, ProcessGroup* group, std::int64_t dim,
                          const Sizes& sizes) {
    save_sizes(context, group, dim, sizes);
    return all_gather_along(*group, input, static_cast<int>(dim), sizes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {own_part(gradients[0], saved_group(context), context->saved_data["dim"].toInt(),
                     context->saved_data["sizes"].toIntVector()),
            {},
            {},
            {}};
  }
};

struct GatherToGroup : torch::autograd::Function<GatherToGroup> {
  static Variable forward(AutogradContext* context, const Variable& input, ProcessGroup* group, std::int64_t dim,
                          const Sizes& sizes) {
    save_sizes(context, group, dim, sizes);
    return all_gather_along(*group, input, static_cast<int>(dim), sizes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {
        reduce_scatter_along(saved_group(context), gradients[0], static_cast<int>(context->saved_data["dim"].toInt()),
                             context->saved_data["sizes"].toIntVector()),
        {},
        {},
        {}};
  }
};

struct SplitToGroup : torch::autograd::Function<SplitToGroup> {
  static Variable forward(AutogradContext* context, const Variable& input, ProcessGroup* group, std::int64_t dim,
                          const Sizes& sizes) {
    save_sizes(context, group, dim, sizes);
    return own_part(input, *group, dim, sizes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return gathered_gradient(context, gradients[0]);
  }
};

struct ReduceScatterToGroup : torch::autograd::Function<ReduceScatterToGroup> {
  static Variable forward(AutogradContext* context, const Variable& input, ProcessGroup* group, std::int64_t dim,
                          const Sizes& sizes) {
    save_sizes(context, group, dim, sizes);
    return reduce_scatter_along(*group, input, static_cast<int>(dim), sizes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return gathered_gradient(context, gradients[0]);
  }
};

}  // namespace

torch::Tensor copy_to_group(const torch::Tensor& input, ProcessGroup& group) {
  return CopyToGroup::apply(input, &group);
}
torch::Tensor reduce_from_group(const torch::Tensor& input, ProcessGroup& group) {
  return ReduceFromGroup::apply(input, &group);
}
torch::Tensor gather_from_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes) {
  return GatherFromGroup::apply(input, &group, c10::maybe_wrap_dim(dim, input.dim()), sizes);
}
torch::Tensor gather_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes) {
  return GatherToGroup::apply(input, &group, c10::maybe_wrap_dim(dim, input.dim()), sizes);
}
torch::Tensor split_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes) {
  return SplitToGroup::apply(input, &group, c10::maybe_wrap_dim(dim, input.dim()), sizes);
}

torch::Tensor reduce_scatter_to_group(const torch::Tensor& input, ProcessGroup& group, int dim, const Sizes& sizes) {
  return ReduceScatterToGroup::apply(input, &group, c10::maybe_wrap_dim(dim, input.dim()), sizes);
}

}  // namespace gantry
