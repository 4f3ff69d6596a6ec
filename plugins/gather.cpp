#include "gantry/plugins/gather.h"

#include <algorithm>
#include <map>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

// What the cuts before the last one leave to this rank, of which ranks hold rows. How long a row is may differ over the
// axes of those cuts.
torch::Tensor gather_rows(const torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh) {
  const ShardSpec& cut = placement.cuts.back();
  Placement without = placement;
  without.cuts.pop_back();
  const Shape left = without.local_shape(mesh.coordinates());
  const std::int64_t rows = elements_of(left) / cut.row;
  const auto axes = names_of(cut.axes);
  std::vector<Range> held;
  Sizes sizes;
  for (const int rank : mesh.mesh().ranks_along(mesh.rank(), axes)) {
    held.push_back(cut.ranges(cut.rank_of(mesh.mesh().coordinates_by_axis(rank, placement.view)), rows).front());
    sizes.push_back(held.back().size());
  }
  const torch::Tensor all = all_gather_along(mesh.group(axes), local.reshape({-1, cut.row}), 0, sizes);
  torch::Tensor whole = torch::empty({rows, cut.row}, all.options());
  std::int64_t from = 0;
  for (const Range& range : held) {
    whole.narrow(0, range.begin, range.size()).copy_(all.narrow(0, from, range.size()));
    from += range.size();
  }
  return whole.view(left);
}

// The whole of what the ranks along the cuts' axes hold, each element from its owner.
torch::Tensor gather_whole(const torch::Tensor& local, const Placement& placement, const ProcessGroupMesh& mesh) {
  if (!placement.cuts.empty() && placement.cuts.back().row > 0) {
    Placement without = placement;
    without.cuts.pop_back();
    return gather_whole(gather_rows(local, placement, mesh), without, mesh);
  }
  const auto axes = placement.cut_axes();
  if (axes.empty()) return local;
  const auto ranks = mesh.mesh().ranks_along(mesh.rank(), axes);
  std::vector<Slice> held;
  Sizes sizes;
  for (const int rank : ranks) {
    held.push_back(held_slice(placement, mesh.mesh().coordinates_by_axis(rank, placement.view)));
    sizes.push_back(held.back().elements());
  }
  const torch::Tensor all = all_gather_along(mesh.group(axes), local.reshape({-1}), 0, sizes);
  torch::Tensor whole = torch::empty(placement.global_shape, all.options());
  std::int64_t end = all.size(0);
  for (std::size_t i = held.size(); i-- > 0;
       end -= sizes[i])  // the owner of shared elements is the lowest: the last here
    copy_common(whole, full_slice(placement.global_shape), all.narrow(0, end - sizes[i], sizes[i]).view(held[i].shape),
                held[i]);
  return whole;
}

// What the owner's tensor has, if it has one; other ranks' parameters may be of another type than its gradients.
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

  TensorDict whole;
  for (const auto& placement : module.all_placements) {
    const int owner = stages.rank_of(placement.stages.front());
    torch::Tensor tensor;
    if (const auto found = held.find(placement.name); found != held.end()) {
      tensor = local(found->second);
      if (tensor.defined()) tensor = gather_whole(tensor.detach(), placement, mesh);
    }
    const auto type = type_of(mesh[axis::kPipeline], tensor, owner);
    if (!type) continue;
    if (stages.pipeline_rank() != owner) tensor = torch::empty(placement.global_shape, *type);
    tensor =
        tensor.detach().to(torch::kCPU).clone(at::MemoryFormat::Contiguous);  // a device need not hold the whole model
    mesh[axis::kPipeline].broadcast(tensor, owner).wait();
    whole.set(placement.name, tensor);
  }
  return whole;
}

}  // namespace gantry
