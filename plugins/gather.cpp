#include "gantry/plugins/gather.h"

#include <algorithm>
#include <map>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

// Gathers along the last shard, which is by rows. Returns the result of all other shards. The length of a row
// may differ over the axes of the other shards.
torch::Tensor gather_rows(const torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh) {
  const ShardSpec& shard = placement.shards.back();
  Placement without = placement;
  without.shards.pop_back();
  const Shape left = without.local_shape(mesh.coordinates());
  const std::int64_t rows = elements_of(left) / shard.row;
  const auto axes = names_of(shard.axes);
  std::vector<Range> held;
  Sizes sizes;
  for (const int rank : mesh.mesh().ranks_along(mesh.rank(), axes)) {
    held.push_back(shard.ranges(shard.rank_of(mesh.mesh().coordinates_by_axis(rank, placement.view)), rows).front());
    sizes.push_back(held.back().size());
  }
  const torch::Tensor all = all_gather_along(mesh.group(axes), local.reshape({-1, shard.row}), 0, sizes);
  torch::Tensor full = torch::empty({rows, shard.row}, all.options());
  std::int64_t from = 0;
  for (const Range& range : held) {
    full.narrow(0, range.begin, range.size()).copy_(all.narrow(0, from, range.size()));
    from += range.size();
  }
  return full.view(left);
}

// Gathers the full tensor from the ranks along the sharding axes, each element from its owner.
torch::Tensor gather_full(const torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh) {
  if (!placement.shards.empty() && placement.shards.back().row > 0) {
    Placement without = placement;
    without.shards.pop_back();
    return gather_full(gather_rows(local, placement, mesh), without, mesh);
  }
  const auto axes = placement.sharded_axes();
  if (axes.empty()) return local;
  const auto ranks = mesh.mesh().ranks_along(mesh.rank(), axes);
  std::vector<Slice> held;
  Sizes sizes;
  for (const int rank : ranks) {
    held.push_back(held_slice(placement, mesh.mesh().coordinates_by_axis(rank, placement.view)));
    sizes.push_back(held.back().elements());
  }
  const torch::Tensor all = all_gather_along(mesh.group(axes), local.reshape({-1}), 0, sizes);
  torch::Tensor full = torch::empty(placement.global_shape, all.options());
  std::int64_t end = all.size(0);
  for (std::size_t i = held.size(); i-- > 0;
       end -= sizes[i])  // from the last rank to the first, because the lowest rank owns shared elements
    copy_common(full, full_slice(placement.global_shape), all.narrow(0, end - sizes[i], sizes[i]).view(held[i].shape),
                held[i]);
  return full;
}

// The type of the owner's tensor, if there is one. Parameters of other ranks may have another type than the
// owner's gradients.
std::optional<torch::ScalarType> type_of(ProcessGroup& group, const torch::Tensor& tensor, int owner) {
  const auto types = all_gather_numbers(group, tensor.defined() ? static_cast<int>(tensor.scalar_type()) : -1);
  if (types[owner] < 0) return std::nullopt;
  return static_cast<torch::ScalarType>(types[owner]);
}

}  // namespace

TensorDict gather_tensors(const StageModule& module, const PipelineStageManager& stages, const ProcessGroupMesh& mesh,
                          const std::function<torch::Tensor(std::size_t)>& local) {
  const torch::NoGradGuard no_grad;
  if (module.materialize_shard) module.materialize_shard();
  std::map<std::string, std::size_t> held;
  for (std::size_t i = 0; i < module.parameters.size(); ++i) held[module.parameters[i].placement.name] = i;

  TensorDict full;
  for (const auto& placement : module.all_placements) {
    const int owner = stages.rank_of(placement.stages.front());
    torch::Tensor tensor;
    if (const auto found = held.find(placement.name); found != held.end()) {
      tensor = local(found->second);
      if (tensor.defined()) tensor = gather_full(tensor.detach(), placement, mesh);
    }
    const auto type = type_of(mesh[axis::kPipeline], tensor, owner);
    if (!type) continue;
    if (stages.pipeline_rank() != owner) tensor = torch::empty(placement.global_shape, *type);
    tensor =
        // A device need not have memory for the full model.
        tensor.detach().to(torch::kCPU).clone(at::MemoryFormat::Contiguous);
    mesh[axis::kPipeline].broadcast(tensor, owner).wait();
    full.set(placement.name, tensor);
  }
  return full;
}

}  // namespace gantry
