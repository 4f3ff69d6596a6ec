#include "gantry/optimizers/gradient_buffers.h"

#include <algorithm>
#include <map>
#include <set>

#include <c10/util/strides.h>
#include <torch/torch.h>

#include "gantry/nn/overlap.h"

namespace gantry {
namespace {

// Views begin on cache lines of whatever type: matrix products give other bits on memory that is aligned otherwise, and
// replicas whose buckets also hold shards of unequal sizes would drift apart.
constexpr std::int64_t kLine = 32;  // elements of two bytes

const std::vector<std::string> kOverReplicas = {"dp"};

// A tensor on part of `flat`'s memory that autograd does not know as a view: LibTorch's zero_grad detaches gradients in
// place, which views refuse.
torch::Tensor share_memory(const torch::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes) {
  const torch::NoGradGuard no_grad;
  torch::Tensor part = torch::empty({0}, flat.options());
  return part.set_(flat.storage(), flat.storage_offset() + offset, sizes, c10::contiguous_strides(sizes));
}

std::int64_t aligned(std::int64_t elements) { return (elements + kLine - 1) / kLine * kLine; }

torch::TensorOptions gradient_options(const torch::Tensor& parameter) {
  const auto type = parameter.scalar_type();
  const bool low = type == torch::kBFloat16 || type == torch::kFloat16;
  return parameter.options().requires_grad(false).dtype(low ? torch::kFloat32 : type);
}

}  // namespace

GradientBuffers::GradientBuffers(std::vector<HeldTensor> parameters, std::vector<SharedGradient> shared,
                                 const ProcessGroupMesh& mesh, const GradientOptions& options)
    : parameters_(std::move(parameters)),
      shared_(std::move(shared)),
      mesh_(mesh),
      options_(options),
      place_(parameters_.size()),
      views_(parameters_.size()) {
  bring_in();
  reset_progress();
  begin_accumulation();
}

void GradientBuffers::bring_in() {
  std::vector<std::size_t> fresh;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor.requires_grad() || steps(i)) continue;
    if (!trained(i)) fresh.push_back(i);
    place_[i].frozen = false;
    // What is in the bucket is zero since it was left out.
    parameters_[i].tensor.mutable_grad() = views_[i];
  }
  if (fresh.empty()) return;
  const std::size_t first = buckets_.size();
  make_buckets(fresh);
  for (std::size_t number = first; number < buckets_.size(); ++number) {
    fill_bucket(buckets_[number]);
    buckets_[number].missing = buckets_[number].members.size();
  }
  for (const std::size_t i : fresh) parameters_[i].tensor.mutable_grad() = views_[i];
}

// Behind those that there are.
void GradientBuffers::make_buckets(const std::vector<std::size_t>& parameters) {
  std::set<std::size_t> shared;
  for (const auto& each : shared_) shared.insert(each.parameter);
  using Key = std::tuple<bool, bool, int, std::vector<std::string>, torch::ScalarType>;
  struct Open {
    std::size_t bucket;
    std::int64_t bytes;
  };
  std::map<Key, Open> open;
  const auto known = static_cast<std::ptrdiff_t>(buckets_.size());
  for (auto each = parameters.rbegin(); each != parameters.rend(); ++each) {
    const std::size_t i = *each;
    const auto& [placement, tensor] = parameters_[i];
    const bool overlaps = placement.along("tp").overlaps();
    const bool late = overlaps || shared.contains(i) || placement.stages.size() > 1;
    // Under ZeRO stages wait for their values apart, and scatter their gradients apart.
    const int stage = options_.shard_over_dp ? placement.stages.front() : 0;
    const Key key{late, overlaps, stage, placement.gradient_axes(), tensor.scalar_type()};
    const auto bytes = aligned(tensor.numel()) * static_cast<std::int64_t>(tensor.element_size());
    auto found = open.find(key);
    if (found == open.end() || found->second.bytes + bytes > options_.bucket_bytes) {
      found = open.insert_or_assign(key, Open{buckets_.size(), 0}).first;
      Bucket bucket;
      bucket.axes = placement.gradient_axes();
      bucket.late = late;
      bucket.stage = stage;
      // Ranges of elements that ranks share would need owners of their own: such parameters stay whole.
      if (options_.shard_over_dp && !overlaps && mesh_.size("dp") > 1) bucket.sizes.resize(mesh_.size("dp"));
      bucket.scattered = options_.shard_gradients && bucket.sharded() && !late && bucket.axes == kOverReplicas;
      buckets_.push_back(std::move(bucket));
    }
    found->second.bytes += bytes;
    buckets_[found->second.bucket].members.push_back(i);
  }
  std::stable_partition(buckets_.begin() + known, buckets_.end(), [](const Bucket& bucket) { return !bucket.late; });
}

void GradientBuffers::fill_bucket(Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  const auto number = static_cast<std::size_t>(&bucket - buckets_.data());
  std::int64_t elements = 0;
  for (const std::size_t i : bucket.members) {
    place_[i].bucket = number;
    place_[i].offset = elements;
    place_[i].trained = true;
    elements += aligned(parameters_[i].tensor.numel());
  }
  bucket.elements = elements;
  const torch::Tensor& first = parameters_[bucket.members.front()].tensor;
  if (bucket.sharded()) {
    bucket.values = torch::zeros({elements}, first.options().requires_grad(false));
    const auto ranges = deal(elements, kLine, static_cast<int>(bucket.sizes.size()), /*allow_empty=*/true);
    for (std::size_t rank = 0; rank < ranges.size(); ++rank) bucket.sizes[rank] = ranges[rank].size();
  }
  const Range own = own_range(bucket, mesh_.coordinate("dp"));
  if (bucket.scattered) {
    bucket.sum = torch::zeros({own.size()}, gradient_options(first));
  } else {
    make_flat(bucket);
    bucket.sum = bucket.flat.narrow(0, own.begin, own.size());
  }
  for (const std::size_t i : bucket.members) {
    auto tensor = parameters_[i].tensor;
    if (!bucket.scattered) views_[i] = share_memory(bucket.flat, place_[i].offset, tensor.sizes());
    if (!bucket.sharded()) continue;
    torch::Tensor values = share_memory(bucket.values, place_[i].offset, tensor.sizes());
    values.copy_(tensor);
    tensor.set_data(values);
  }
}

void GradientBuffers::make_flat(Bucket& bucket) const {
  bucket.flat = torch::zeros({bucket.elements}, gradient_options(parameters_[bucket.members.front()].tensor));
}

void GradientBuffers::reset_progress() {
  for (auto& bucket : buckets_) {
    bucket.missing = bucket.members.size();
    if (!bucket.scattered) continue;
    bucket.flat.reset();  // a step that was given up may leave some
    bucket.set_out = false;
  }
  for (auto& place : place_) place.ready = false;
  next_ = 0;
  watches_ = false;
}

bool GradientBuffers::begin_accumulation() {
  release_completed();
  bring_in();
  bool detached = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!steps(i)) continue;
    auto& gradient = parameters_[i].tensor.mutable_grad();
    if (bucket_of(i).scattered) {
      gradient.reset();
      continue;
    }
    if (gradient.defined() && gradient.is_same(views_[i])) continue;
    detached = detached || !gradient.defined();
    gradient = views_[i];
  }
  // An optimizer's own zero_grad sets gradients to none: that means zero.
  const bool removed = detached && !zeroed_;
  if (removed) zero();
  leave_out_frozen();
  if (!reduced_) return removed;
  if (!zeroed_) {
    for (auto& bucket : buckets_) {
      bucket.put_aside = bucket.sum.clone();
      zero(bucket);
    }
  }
  reduced_ = false;
  zeroed_ = false;
  return removed;
}

// Gradients that are not zero yet are stepped first.
void GradientBuffers::leave_out_frozen() {
  if (!zeroed_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!steps(i) || parameters_[i].tensor.requires_grad()) continue;
    place_[i].frozen = true;
    parameters_[i].tensor.mutable_grad().reset();
  }
}

void GradientBuffers::parameter_reached(std::size_t parameter) {
  place_[parameter].reached = true;
  parameter_ready(parameter);
}

void GradientBuffers::parameter_ready(std::size_t parameter) {
  if (!trained(parameter)) return;
  if (bucket_of(parameter).scattered) {
    if (!holds_) scatter(parameter);
    return;
  }
  if (!watches_ || place_[parameter].ready) return;
  place_[parameter].ready = true;
  --bucket_of(parameter).missing;
  while (next_ < buckets_.size() &&
         (buckets_[next_].scattered || (!buckets_[next_].late && buckets_[next_].missing == 0)))
    start(buckets_[next_++]);
}

void GradientBuffers::stage_ready(int stage) {
  const bool watched = watches_;
  watches_ = true;
  for (std::size_t i = parameters_.size(); i-- > 0;)
    if (trained(i) && !bucket_of(i).scattered && parameters_[i].placement.stages == std::vector<int>{stage})
      parameter_ready(i);
  watches_ = watched;
}

void GradientBuffers::start(Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  if (bucket.axes.empty() || bucket.scattered) return;
  if (bucket.sharded() && bucket.axes == kOverReplicas) {
    bucket.work = mesh_["dp"].reduce_scatter(bucket.sum, bucket.flat, bucket.sizes);
  } else {
    bucket.work = mesh_.group(bucket.axes).all_reduce(bucket.flat);
  }
}

void GradientBuffers::sync(double factor) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (const auto& along = parameters_[i].placement.along("tp"); views_[i].defined() && along.overlaps())
      sum_overlaps(views_[i], along, mesh_["tp"]);
  for (const auto& shared : shared_)
    if (trained(shared.parameter)) shared.group->all_reduce(views_[shared.parameter]).wait();
  while (!in_flight_.empty()) finish_scatter(buckets_[in_flight_.front()]);
  while (next_ < buckets_.size()) start(buckets_[next_++]);
  for (auto& bucket : buckets_) {
    bucket.work.wait();
    bucket.work = {};
  }
  reset_progress();
  if (factor != 1) scale(factor);
  for (auto& bucket : buckets_) {
    if (bucket.put_aside.defined()) bucket.sum.add_(bucket.put_aside);
    bucket.put_aside.reset();
  }
  reduced_ = true;
  zeroed_ = false;
}

void GradientBuffers::zero(Bucket& bucket) { (bucket.scattered ? bucket.sum : bucket.flat).zero_(); }

void GradientBuffers::zero() {
  release_completed();
  for (auto& bucket : buckets_) {
    zero(bucket);
    bucket.put_aside.reset();
  }
  zeroed_ = true;
  reduced_ = false;
}

void GradientBuffers::scale(double factor) {
  for (auto& bucket : buckets_) bucket.sum.mul_(factor);
}

std::uint64_t GradientBuffers::changes() const {
  std::uint64_t count = 0;
  for (const auto& view : views_)
    if (view.defined()) count += view._version();
  for (const auto& bucket : buckets_) count += bucket.sum._version();
  return count;
}

}  // namespace gantry
