#include "gantry/optimizers/gradient_bucket.h"

#include <algorithm>
#include <map>

#include <c10/util/strides.h>

#include "gantry/comm/registered_memory.h"
#include "gantry/optimizers/parameter_shards.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The batch axes that do not shard the parameter.
std::vector<std::string> replicas_of(const Placement& placement, const Mesh& mesh) {
  auto axes = mesh.batch_axes(placement.view);
  std::erase_if(axes, [&](const std::string& axis) { return placement.along(axis).sharded(); });
  std::sort(axes.begin(), axes.end());
  return axes;
}

BucketKind kind_of(const HeldTensor& held, bool shared, int unit, const BucketRules& rules) {
  const auto& placement = held.placement;
  const bool overlaps = placement.overlaps();
  return {.late = overlaps || shared || placement.stages.size() > 1,
          .overlaps = overlaps,
          .stage = rules.stages_apart ? placement.stages.front() : 0,
          .unit = unit,
          .axes = placement.gradient_axes(rules.mesh->batch_axes(placement.view)),
          .replicas = replicas_of(placement, *rules.mesh),
          .type = held.tensor.scalar_type()};
}

}  // namespace

Range GradientBucket::range(int replica) const {
  if (!is_partitioned()) return {0, elements};
  std::int64_t begin = 0;
  for (int rank = 0; rank < replica; ++rank) begin += sizes[rank];
  return {begin, begin + sizes[replica]};
}

void GradientBucket::begin() {
  for (auto& member : members) member.ready = false;
  missing = members.size();
}

torch::ScalarType GradientBucket::type_of_gradients() const {
  const bool low = kind.type == torch::kBFloat16 || kind.type == torch::kFloat16;
  return low ? torch::kFloat32 : kind.type;
}

torch::Tensor GradientBucket::new_gradients(std::int64_t count, ProcessGroup* group) const {
  return communicated_zeros(group, count, members.front().tensor.options().dtype(type_of_gradients()));
}

void GradientBucket::show_gradients() {
  for (auto& member : members) member.gradient = share_memory(gradients, member.offset, member.tensor.sizes());
}

std::vector<GradientBucket> distribute_to_buckets(const std::vector<HeldTensor>& held,
                                                  const std::vector<std::size_t>& parameters,
                                                  const std::set<std::size_t>& shared, const BucketRules& rules) {
  struct Open {
    std::size_t bucket;
    std::int64_t bytes;
  };
  std::map<BucketKind, Open> open;
  std::vector<GradientBucket> buckets;
  for (auto each = parameters.rbegin(); each != parameters.rend(); ++each) {
    const torch::Tensor& tensor = held[*each].tensor;
    const int unit = rules.shards ? rules.shards->unit(*each) : -1;
    const BucketKind kind = kind_of(held[*each], shared.contains(*each), unit, rules);
    const auto bytes = aligned(tensor.numel()) * static_cast<std::int64_t>(tensor.element_size());
    auto found = open.find(kind);
    if (found == open.end() || (unit < 0 && found->second.bytes + bytes > rules.bytes)) {
      found = open.insert_or_assign(kind, Open{buckets.size(), 0}).first;
      buckets.emplace_back().kind = kind;
    }
    found->second.bytes += bytes;
    GradientBucket& bucket = buckets[found->second.bucket];
    BucketMember& member = bucket.members.emplace_back();
    member.parameter = *each;
    member.tensor = tensor;
    member.offset = bucket.elements;
    bucket.elements += aligned(tensor.numel());
  }
  std::stable_partition(buckets.begin(), buckets.end(), [](const GradientBucket& bucket) { return !bucket.kind.late; });
  return buckets;
}

void partition(GradientBucket& bucket, int replicas) {
  const std::int64_t each = aligned((bucket.elements + replicas - 1) / replicas);
  bucket.elements = each * replicas;
  bucket.sizes.assign(static_cast<std::size_t>(replicas), each);
}

torch::Tensor share_memory(const torch::Tensor& tensor, std::int64_t offset, at::IntArrayRef sizes) {
  const torch::NoGradGuard no_grad;
  torch::Tensor part = torch::empty({0}, tensor.options());
  return part.set_(tensor.storage(), tensor.storage_offset() + offset, sizes, c10::contiguous_strides(sizes));
}

}  // namespace gantry
