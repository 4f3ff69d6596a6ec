#include "gantry/checkpoint/slices.h"

#include <algorithm>

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// One run of elements that two lists of ranges have in common: where it begins in each, laid one after the other.
struct Overlap {
  std::int64_t in_first, in_second, size;
};

std::vector<Overlap> overlaps(const std::vector<Range>& first, const std::vector<Range>& second) {
  std::vector<Overlap> common;
  std::int64_t first_offset = 0;
  for (const Range& a : first) {
    std::int64_t second_offset = 0;
    for (const Range& b : second) {
      const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
      if (begin < end) common.push_back({first_offset + begin - a.begin, second_offset + begin - b.begin, end - begin});
      second_offset += b.size();
    }
    first_offset += a.size();
  }
  return common;
}

}  // namespace

HeldPart part_held(const Placement& placement, const std::map<std::string, int>& coordinates) {
  HeldPart part;
  for (const auto& [axis, along] : placement.axes) {
    if (!along.sharded()) continue;
    if (!part.axis.empty())
      throw InternalError({placement.name, "is sharded along " + part.axis + " and " + axis, "one axis", ""});
    const int rank = coordinates.at(axis);
    part = {axis, along.dim, along.ranges(rank), along.owned(rank)};
  }
  return part;
}

WriterShare::WriterShare(const ProcessGroupMesh& mesh)
    : replicas_(mesh.size("dp")),
      tensor_(mesh.size("tp")),
      my_replica_(mesh.coordinate("dp")),
      my_tensor_(mesh.coordinate("tp")),
      loads_(static_cast<std::size_t>(replicas_ * tensor_)) {}

bool WriterShare::turn_of(const HeldPart& part, std::int64_t bytes) {
  const bool by_tensor = part.axis == "tp", by_data = part.axis == "dp";
  int least_replica = 0, least_tensor = 0;
  const auto cost = [&](int replica, int tensor) { return load(by_data ? 0 : replica, by_tensor ? 0 : tensor); };
  for (int replica = 0; replica < replicas_; ++replica)
    for (int tensor = 0; tensor < tensor_; ++tensor)
      if (cost(replica, tensor) < cost(least_replica, least_tensor)) least_replica = replica, least_tensor = tensor;
  for (int replica = 0; replica < replicas_; ++replica)
    for (int tensor = 0; tensor < tensor_; ++tensor)
      if ((by_data || replica == least_replica) && (by_tensor || tensor == least_tensor))
        load(replica, tensor) += bytes / (by_tensor ? tensor_ : by_data ? replicas_ : 1);
  return (by_data || my_replica_ == least_replica) && (by_tensor || my_tensor_ == least_tensor);
}

torch::Tensor cut_ranges(const torch::Tensor& whole, std::int64_t dim, const std::vector<Range>& ranges) {
  std::vector<torch::Tensor> pieces;
  for (const Range& range : ranges) pieces.push_back(whole.narrow(dim, range.begin, range.size()));
  return torch::cat(pieces, dim);
}

torch::Tensor owned_part(const torch::Tensor& held, const HeldPart& part) {
  const torch::Tensor plain = held.detach();
  if (part.dim < 0 || part.ranges == part.owned) return plain;
  std::vector<torch::Tensor> pieces;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < part.ranges.size(); ++i) {
    pieces.push_back(plain.narrow(part.dim, offset + part.owned[i].begin - part.ranges[i].begin, part.owned[i].size()));
    offset += part.ranges[i].size();
  }
  return torch::cat(pieces, part.dim);
}

void fill_from_slices(const ManifestTensor& tensor, const SliceReader& slice_of, torch::Tensor target, int wanted_dim,
                      const std::vector<Range>& wanted) {
  const torch::NoGradGuard no_grad;
  for (const auto& slice : tensor.slices) {
    if (slice.dim < 0 && wanted_dim < 0) {
      target.copy_(slice_of(slice));
      continue;
    }
    // Along each dim that either cuts, what both have; the other of the two has all of that dim.
    const int dim = slice.dim < 0 ? wanted_dim : slice.dim;
    const std::vector<Range> all{{0, tensor.shape[dim]}};
    const auto& stored = slice.dim < 0 ? all : slice.ranges;
    const auto here = overlaps(wanted_dim == dim ? wanted : all, stored);
    if (here.empty()) continue;
    torch::Tensor part = slice_of(slice), place = target;
    if (wanted_dim >= 0 && wanted_dim != dim) part = cut_ranges(part, wanted_dim, wanted);  // the slice has all of it
    for (const auto& [in_target, in_part, size] : here)
      place.narrow(dim, in_target, size).copy_(part.narrow(dim, in_part, size));
  }
}

}  // namespace gantry
