// The part of GradientBuffers that is ZeRO 2: gradients on their way to the dp rank that owns them.
#include <algorithm>

#include <torch/torch.h>

#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {
namespace {

// Whole buckets at a time: one travels while the next one fills.
constexpr std::size_t kMostInFlight = 1;

}  // namespace

bool GradientBuffers::scatters() const {
  return std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.scattered; });
}

// Moves what a backward has added for a parameter into its bucket. A parameter that is used again afterwards has its
// bucket set out again.
void GradientBuffers::scatter(std::size_t parameter) {
  const torch::NoGradGuard no_grad;
  auto& gradient = parameters_[parameter].tensor.mutable_grad();
  if (!gradient.defined()) return;
  Bucket& bucket = bucket_of(parameter);
  if (bucket.travels) finish_scatter(bucket);
  if (!bucket.flat.defined()) make_flat(bucket);
  Place& place = place_[parameter];
  bucket.flat.narrow(0, place.offset, gradient.numel()).view(gradient.sizes()).add_(gradient);
  gradient.reset();
  if (place.ready) return;
  place.ready = true;
  if (--bucket.missing == 0) start_scatter(bucket);
}

void GradientBuffers::start_scatter(Bucket& bucket) {
  while (in_flight_.size() >= kMostInFlight) finish_scatter(buckets_[in_flight_.front()]);
  if (!bucket.flat.defined()) make_flat(bucket);
  const Range own = own_range(bucket, mesh_.coordinate("dp"));
  torch::Tensor own_part = bucket.flat.narrow(0, own.begin, own.size());
  bucket.work = mesh_["dp"].reduce_scatter(own_part, bucket.flat, bucket.sizes);
  in_flight_.push_back(static_cast<std::size_t>(&bucket - buckets_.data()));
  bucket.set_out = true;
  bucket.travels = true;
  bucket.missing = bucket.members.size();
  for (const std::size_t i : bucket.members) place_[i].ready = false;
}

void GradientBuffers::finish_scatter(Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  std::erase(in_flight_, static_cast<std::size_t>(&bucket - buckets_.data()));
  bucket.work.wait();
  bucket.work = {};
  bucket.travels = false;
  const Range own = own_range(bucket, mesh_.coordinate("dp"));
  bucket.sum.add_(bucket.flat.narrow(0, own.begin, own.size()));
  bucket.flat.reset();
}

// What complete() put together.
void GradientBuffers::release_completed() {
  for (auto& bucket : buckets_) {
    if (!bucket.scattered) continue;
    bucket.flat.reset();
    for (const std::size_t i : bucket.members) views_[i].reset();
  }
}

void GradientBuffers::scatter_added(int stage) {
  for (auto& bucket : buckets_)
    if (bucket.scattered && bucket.stage == stage)
      for (const std::size_t i : bucket.members) scatter(i);
}

void GradientBuffers::scatter_stage(int stage) {
  for (auto& bucket : buckets_) {
    if (!bucket.scattered || bucket.stage != stage) continue;
    for (const std::size_t i : bucket.members) scatter(i);
    const bool filled = bucket.flat.defined() && !bucket.travels;
    if (filled || !bucket.set_out) start_scatter(bucket);
    bucket.set_out = false;
  }
}

}  // namespace gantry
