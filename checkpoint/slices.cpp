#include "gantry/checkpoint/slices.h"

#include <algorithm>

#include "gantry/tensors/libtorch.h"

namespace gantry {
WriterShare::WriterShare(const ProcessGroupMesh& mesh)
    : mesh_(mesh), ranks_(mesh.mesh().ranks_along(mesh.rank(), mesh.mesh().within_stage())), loads_(ranks_.size(), 0) {}

const WriterShare::Parts& WriterShare::parts_of(const Placement& placement) {
  const Mesh& mesh = mesh_.mesh();
  const auto axes = placement.sharded_axes();
  const auto [found, fresh] = parts_.try_emplace(axes);
  Parts& parts = found->second;
  if (!fresh) return parts;
  std::map<std::vector<int>, int> numbers;
  for (const int rank : ranks_) {
    std::vector<int> place;
    for (const auto& axis : axes) place.push_back(mesh.coordinate(rank, axis));
    parts.part_of.push_back(numbers.try_emplace(place, static_cast<int>(numbers.size())).first->second);
  }
  parts.count = static_cast<int>(numbers.size());
  return parts;
}

bool WriterShare::turn_of(const Placement& placement, std::int64_t bytes) {
  const Parts& parts = parts_of(placement);
  std::vector<int> writers(parts.count, -1);  // per part: the holder with the least to write so far
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (int& writer = writers[parts.part_of[i]]; writer < 0 || loads_[i] < loads_[writer]) writer = static_cast<int>(i);
  for (const int writer : writers) loads_[writer] += bytes / parts.count;
  return std::any_of(writers.begin(), writers.end(), [&](int writer) { return ranks_[writer] == mesh_.rank(); });
}

torch::Tensor owned_part(const HeldTensor& held, const Coordinates& coordinates) {
  const torch::Tensor plain = held.tensor.detach();
  const Slice mine = held_slice(held.placement, coordinates), owned = owned_slice(held.placement, coordinates);
  if (mine == owned) return plain;
  torch::Tensor part = torch::empty(owned.shape, plain.options());
  copy_common(part, owned, plain, mine);
  return part;
}

void fill_from_slices(const ManifestTensor& tensor, const SliceReader& slice_of, const torch::Tensor& target,
                      const Slice& wanted) {
  for (const auto& stored : tensor.slices) {
    const Slice slice = tensor.slice_of(stored);
    if (have_common(wanted, slice)) copy_common(target, wanted, slice_of(stored), slice);
  }
}

}  // namespace gantry
