// The part of GradientBuffers that ZeRO needs: which dp rank steps which elements, and the values' way back.
#include <algorithm>

#include <c10/util/strides.h>
#include <torch/torch.h>

#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {
namespace {

torch::Tensor flat_part(const torch::Tensor& tensor, const Range& range) {
  const torch::NoGradGuard no_grad;
  torch::Tensor part = torch::empty({0}, tensor.options().requires_grad(false));
  return part.set_(tensor.storage(), tensor.storage_offset() + range.begin, {range.size()}, {1});
}

}  // namespace

Range GradientBuffers::own_range(const Bucket& bucket, int replica) const {
  if (!bucket.sharded()) return {0, bucket.elements};
  std::int64_t begin = 0;
  for (int rank = 0; rank < replica; ++rank) begin += bucket.sizes[rank];
  return {begin, begin + bucket.sizes[replica]};
}

Range GradientBuffers::owned(std::size_t parameter, int replica) const {
  const std::int64_t elements = parameters_[parameter].tensor.numel();
  const Range own = own_range(bucket_of(parameter), replica);
  const std::int64_t offset = place_[parameter].offset;
  const std::int64_t begin = std::clamp<std::int64_t>(own.begin - offset, 0, elements);
  return {begin, std::clamp<std::int64_t>(own.end - offset, begin, elements)};
}

torch::Tensor GradientBuffers::owned_gradient(std::size_t parameter) const {
  const Bucket& bucket = bucket_of(parameter);
  const int replica = mesh_.coordinate("dp");
  const Range part = owned(parameter, replica);
  const std::int64_t before = place_[parameter].offset - own_range(bucket, replica).begin;
  if (part.size() == 0) return flat_part(bucket.sum, {0, 0});
  return flat_part(bucket.sum, {before + part.begin, before + part.end});
}

torch::Tensor GradientBuffers::owned_values(std::size_t parameter) const {
  return flat_part(parameters_[parameter].tensor, owned(parameter, mesh_.coordinate("dp")));
}

bool GradientBuffers::has_stage(const Bucket& bucket, int stage) const {
  return std::any_of(bucket.members.begin(), bucket.members.end(), [&](std::size_t i) {
    const auto& stages = parameters_[i].placement.stages;
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
  });
}

void GradientBuffers::gather_values() {
  const torch::NoGradGuard no_grad;
  wait_values();
  gathers_.resize(buckets_.size());
  for (std::size_t number = buckets_.size(); number-- > 0;) {
    Bucket& bucket = buckets_[number];
    if (!bucket.sharded()) continue;
    const Range own = own_range(bucket, mesh_.coordinate("dp"));
    gathers_[number] =
        mesh_["dp"].all_gather(bucket.values, bucket.values.narrow(0, own.begin, own.size()), bucket.sizes);
  }
}

void GradientBuffers::wait_values() {
  for (auto& gather : gathers_) gather.wait();
  gathers_.clear();
}

void GradientBuffers::wait_values(int stage) {
  for (std::size_t number = 0; number < gathers_.size(); ++number) {
    if (!has_stage(buckets_[number], stage)) continue;
    gathers_[number].wait();
    gathers_[number] = {};
  }
}

void GradientBuffers::complete() {
  const torch::NoGradGuard no_grad;
  for (auto& bucket : buckets_) {
    if (!bucket.sharded()) continue;
    if (bucket.scattered) make_flat(bucket);
    mesh_["dp"].all_gather(bucket.flat, bucket.sum, bucket.sizes).wait();
    if (!bucket.scattered) continue;
    for (const std::size_t i : bucket.members)
      views_[i] = flat_part(bucket.flat, {place_[i].offset, place_[i].offset + parameters_[i].tensor.numel()})
                      .view(parameters_[i].tensor.sizes());
  }
}

}  // namespace gantry
