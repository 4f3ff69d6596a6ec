#include "gantry/plugins/gather.h"

#include <map>

#include <torch/torch.h>

namespace gantry {
namespace {

// [ranges of rank 0, ranges of rank 1, ...] along the sharded dim -> the whole, each element from its owner.
torch::Tensor assemble(const torch::Tensor& gathered, const AxisPlacement& along, int ranks, at::IntArrayRef shape) {
  torch::Tensor whole = torch::empty(shape, gathered.options());
  std::int64_t offset = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto held = along.ranges(rank);
    const auto owned = along.owned(rank);
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (owned[i].size() > 0)
        whole.narrow(along.dim, owned[i].begin, owned[i].size())
            .copy_(gathered.narrow(along.dim, offset + owned[i].begin - held[i].begin, owned[i].size()));
      offset += held[i].size();
    }
  }
  return whole;
}

// What the owner's tensor has; other ranks' parameters may be of another type than its gradients.
torch::ScalarType type_of(ProcessGroup& group, const torch::Tensor& tensor, int owner) {
  const auto types = all_gather_numbers(group, tensor.defined() ? static_cast<int>(tensor.scalar_type()) : -1);
  return static_cast<torch::ScalarType>(types[owner]);
}

}  // namespace

TensorDict gather_tensors(const StageModule& module, const PipelineStageManager& stages, const ProcessGroupMesh& mesh,
                          const std::function<torch::Tensor(std::size_t)>& local) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, std::size_t> held;
  for (std::size_t i = 0; i < module.parameters.size(); ++i) held[module.parameters[i].placement.name] = i;

  TensorDict whole;
  ProcessGroup& tensor_group = mesh["tp"];
  for (const auto& placement : module.all_placements) {
    const int owner = stages.rank_of(placement.stages.front());
    torch::Tensor tensor;
    if (const auto found = held.find(placement.name); found != held.end()) {
      tensor = local(found->second).detach();
      if (const auto& along = placement.along("tp"); along.sharded()) {
        Sizes sizes;
        for (int rank = 0; rank < tensor_group.size(); ++rank) sizes.push_back(along.local_size(rank));
        tensor = assemble(all_gather_along(tensor_group, tensor, along.dim, sizes), along, tensor_group.size(),
                          placement.global_shape);
      }
    }
    const auto type = type_of(mesh["pp"], tensor, owner);
    if (stages.pipeline_rank() != owner) tensor = torch::empty(placement.global_shape, type);
    tensor =
        tensor.detach().to(torch::kCPU).clone(at::MemoryFormat::Contiguous);  // a device need not hold the whole model
    mesh["pp"].broadcast(tensor, owner).wait();
    whole.set(placement.name, tensor);
  }
  return whole;
}

}  // namespace gantry
