#include "gantry/optimizers/gradient_buffers.h"

#include <algorithm>
#include <set>

#include "gantry/optimizers/overlap_sum.h"
#include "gantry/optimizers/parameter_shards.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The gradients that the program has now.
std::vector<torch::Tensor> visible_gradients(const std::vector<HeldTensor>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.tensor.grad());
  return gradients;
}

}  // namespace

GradientBuffers::GradientBuffers(std::vector<HeldTensor> parameters, std::vector<SharedGradient> shared,
                                 const ProcessGroupMesh& mesh, const GradientOptions& options)
    : parameters_(std::move(parameters)),
      shared_(std::move(shared)),
      mesh_(mesh),
      shards_(options.shards),
      strategies_(zero_level(options.zero), mesh, shards_),
      rules_{.mesh = &mesh.mesh(),
             .bytes = options.bucket_bytes,
             .shards = shards_,
             .stages_apart = strategies_.stages_apart()},
      overlaps_(options.overlaps),
      place_(parameters_.size()) {
  for (const auto& parameter : parameters_) stepped_.push_back(parameter.placement);
  begin_accumulation();
}

// --- Which parameters take part ---

void GradientBuffers::add_parameters() {
  std::vector<std::size_t> fresh;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].tensor.requires_grad() || steps(i)) continue;
    place_[i].frozen = false;
    // A frozen parameter that is trained again still has a place in a bucket, where its gradient has stayed
    // zero.
    if (trained(i))
      show_gradient(i);
    else
      fresh.push_back(i);
  }
  add_buckets(fresh);
  for (const std::size_t i : fresh) show_gradient(i);
}

// The new buckets follow the existing ones.
void GradientBuffers::add_buckets(const std::vector<std::size_t>& parameters) {
  const torch::NoGradGuard no_grad;
  std::set<std::size_t> shared;
  for (const auto& each : shared_) shared.insert(each.parameter);
  for (auto& filled : distribute_to_buckets(parameters_, parameters, shared, rules_)) {
    GradientBucket& bucket = buckets_.emplace_back(std::move(filled));
    bucket.strategy = &strategies_.of(bucket.kind);
    bucket.strategy->lay_out(bucket);
    bucket.begin();
    for (std::size_t member = 0; member < bucket.members.size(); ++member) {
      Place& place = place_[bucket.members[member].parameter];
      place.bucket = buckets_.size() - 1;
      place.member = member;
      place.trained = true;
      stepped_[bucket.members[member].parameter] =
          part_placement(bucketed(bucket.members[member].parameter), mesh_.mesh());
    }
  }
}

// Waits until gradients are zero: other gradients have to be applied first.
void GradientBuffers::leave_out_frozen() {
  if (!zeroed_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!steps(i) || parameters_[i].tensor.requires_grad()) continue;
    place_[i].frozen = true;
    if (const auto& lazy = member_of(i).lazy) lazy->hide();
    parameters_[i].tensor.mutable_grad().reset();
  }
}

// --- From step to step ---

void GradientBuffers::show_gradient(std::size_t parameter) {
  if (shows_lazily(parameter)) return member_of(parameter).lazy->show();
  parameters_[parameter].tensor.mutable_grad() = member_of(parameter).gradient;
}

// Attaches the gradients of all parameters that step. Returns true if the program has removed one (set it to
// none).
bool GradientBuffers::show_gradients() {
  bool removed = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!steps(i)) continue;
    const torch::Tensor& gradient = parameters_[i].tensor.grad();
    if (gradient.is_same(shows_lazily(i) ? member_of(i).lazy->gradient() : member_of(i).gradient)) continue;
    removed = removed || (!gradient.defined() && !shows_lazily(i));
    show_gradient(i);
  }
  return removed;
}

bool GradientBuffers::begin_accumulation() {
  release_buckets();
  add_parameters();
  // An optimizer's own zero_grad() sets gradients to none, which means zero.
  const bool removed = show_gradients() && !zeroed_;
  if (removed) zero();
  leave_out_frozen();
  if (!reduced_) return removed;
  if (!zeroed_) {
    const torch::NoGradGuard no_grad;
    if (left_ != 1) scale(1);
    for (auto& bucket : buckets_) {
      bucket.previously_reduced = bucket.sum.clone();
      zero(bucket);
    }
  }
  reduced_ = false;
  zeroed_ = false;
  return removed;
}

// A removed gradient counts as zero. The contents of the bucket are from an earlier backward.
void GradientBuffers::take_gradients(const std::vector<torch::Tensor>& of_program) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!trained(i) || is_in_unit(i) || of_program[i].is_same(member_of(i).gradient)) continue;
    if (!member_of(i).gradient.defined()) continue;
    of_program[i].defined() ? member_of(i).gradient.copy_(of_program[i]) : member_of(i).gradient.zero_();
    if (steps(i)) show_gradient(i);
  }
}

void GradientBuffers::take_over() {
  const std::vector<torch::Tensor> before = visible_gradients(parameters_);
  add_parameters();
  take_gradients(before);
  leave_out_frozen();
}

bool GradientBuffers::were_all_removed() const {
  bool any = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!steps(i) || !member_of(i).gradient.defined() || is_in_unit(i)) continue;
    if (parameters_[i].tensor.grad().defined()) return false;
    any = true;
  }
  return any;
}

void GradientBuffers::zero_removed() { take_gradients(visible_gradients(parameters_)); }

// If full gradients are kept, `sum` is a part of them. Otherwise, and in a unit, `sum` has its own memory.
void GradientBuffers::zero(GradientBucket& bucket) {
  for (auto& member : bucket.members)
    if (member.lazy) member.lazy->clear();
  if (bucket.sum_memory) {
    bucket.sum_memory->bring();  // an aborted step did not do so
    bucket.sum.zero_();
  }
  (bucket.gradients.defined() ? bucket.gradients : bucket.sum).zero_();
}

void GradientBuffers::zero() {
  for (auto& bucket : buckets_) {
    bucket.strategy->finish(bucket);
    bucket.strategy->release(bucket);
    bucket.begin();
    zero(bucket);
    bucket.previously_reduced.reset();
  }
  next_ = 0;
  watches_ = false;
  left_ = 1;
  zeroed_ = true;
  reduced_ = false;
}

void GradientBuffers::release_buckets() {
  for (auto& bucket : buckets_) bucket.strategy->release(bucket);
}

void GradientBuffers::scale(double factor) {
  for (auto& bucket : buckets_) bucket.sum.mul_(factor * left_);
  left_ = 1;
}

// --- Within a step ---

void GradientBuffers::parameter_reached(std::size_t parameter) {
  place_[parameter].reached = true;
  parameter_ready(parameter);
}

void GradientBuffers::parameter_ready(std::size_t parameter) {
  if (!trained(parameter)) return;
  GradientBucket& bucket = bucket_of(parameter);
  if (bucket.kind.unit >= 0) return;  // reduce_unit() and the sync reduce it
  BucketMember& member = member_of(parameter);
  if (bucket.strategy->sends_within_backwards()) {
    bucket.strategy->add(bucket, member, /*sends=*/!holds_);
    return;
  }
  if (!watches_ || member.ready) return;
  member.ready = true;
  --bucket.missing;
  send_ready();
}

void GradientBuffers::stage_ready(int stage) {
  const bool watched = watches_;
  watches_ = true;
  for (std::size_t i = parameters_.size(); i-- > 0;)
    if (trained(i) && !bucket_of(i).strategy->sends_within_backwards() &&
        parameters_[i].placement.stages == std::vector<int>{stage})
      parameter_ready(i);
  watches_ = watched;
}

// Launches the reductions of buckets that are ready, in the order of the buckets.
void GradientBuffers::send_ready() {
  const torch::NoGradGuard no_grad;
  for (; next_ < buckets_.size(); ++next_) {
    GradientBucket& bucket = buckets_[next_];
    const bool is_ready = bucket.kind.unit >= 0 || (!bucket.kind.late && bucket.missing == 0);
    if (!is_ready && !bucket.strategy->sends_within_backwards()) return;
    bucket.strategy->send(bucket);
  }
}

bool GradientBuffers::has_unsent() const {
  return std::any_of(buckets_.begin(), buckets_.end(),
                     [](const auto& bucket) { return bucket.strategy->has_unsent(bucket); });
}

void GradientBuffers::scatter_added(int stage) {
  for (auto& bucket : buckets_) {
    if (bucket.kind.stage != stage) continue;
    for (auto& member : bucket.members) bucket.strategy->add(bucket, member, /*sends=*/true);
  }
}

void GradientBuffers::scatter_stage(int stage) {
  for (auto& bucket : buckets_) {
    if (bucket.kind.stage != stage) continue;
    for (auto& member : bucket.members) bucket.strategy->add(bucket, member, /*sends=*/true);
    bucket.strategy->send_added(bucket);
  }
}

void GradientBuffers::sync(double factor, double left, bool any_unsent) {
  const torch::NoGradGuard no_grad;
  if (any_unsent)
    for (auto& bucket : buckets_) bucket.strategy->send_added(bucket);
  for (auto& bucket : buckets_)
    if (bucket.kind.unit >= 0 && bucket.kind.late) bucket.strategy->open(bucket);
  if (overlaps_ == GradientSum::kAtSync)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (trained(i)) sum_overlaps(member_of(i).gradient, parameters_[i].placement, mesh_);
  for (const auto& shared : shared_)
    if (trained(shared.parameter)) shared.group->all_reduce(member_of(shared.parameter).gradient).wait();
  for (; next_ < buckets_.size(); ++next_) buckets_[next_].strategy->send(buckets_[next_]);
  for (auto& bucket : buckets_) bucket.strategy->reduce(bucket);
  for (auto& bucket : buckets_) {
    bucket.strategy->finish(bucket);
    bucket.strategy->release(bucket);
    bucket.begin();
  }
  next_ = 0;
  watches_ = false;
  const bool adds = std::any_of(buckets_.begin(), buckets_.end(),
                                [](const auto& bucket) { return bucket.previously_reduced.defined(); });
  if (adds) factor *= left;
  if (factor != 1) scale(factor);
  left_ = adds ? 1 : left;
  for (auto& bucket : buckets_) {
    if (bucket.previously_reduced.defined()) bucket.sum.add_(bucket.previously_reduced);
    bucket.previously_reduced.reset();
  }
  reduced_ = true;
  zeroed_ = false;
}

void GradientBuffers::release_sums() {
  for (auto& bucket : buckets_)
    if (bucket.sum_memory) bucket.sum_memory->release();
}

void GradientBuffers::open_unit(int unit) {
  for (auto& bucket : buckets_)
    if (bucket.kind.unit == unit) bucket.strategy->open(bucket);
}

void GradientBuffers::reduce_unit(int unit) {
  for (auto& bucket : buckets_)
    if (bucket.kind.unit == unit && !bucket.kind.late) bucket.strategy->reduce(bucket);
}

// --- What others see ---

torch::Tensor GradientBuffers::gradient(std::size_t parameter) const {
  if (is_in_unit(parameter)) return owned_gradient(parameter).view(shards_->shard(parameter).tensor.sizes());
  return trained(parameter) ? member_of(parameter).gradient : torch::Tensor();
}

void GradientBuffers::complete() {
  const torch::NoGradGuard no_grad;
  for (auto& bucket : buckets_) bucket.strategy->complete(bucket);
}

BucketedParameter GradientBuffers::bucketed(std::size_t parameter) const {
  return {parameters_[parameter], bucket_of(parameter), member_of(parameter),
          is_in_unit(parameter) ? &shards_->shard(parameter) : nullptr};
}

std::uint64_t GradientBuffers::changes() const {
  std::uint64_t count = 0;
  for (const auto& bucket : buckets_) {
    count += bucket.sum._version();
    for (const auto& member : bucket.members)
      if (member.gradient.defined()) count += member.gradient._version();
  }
  return count;
}

bool GradientBuffers::has_values(std::size_t parameter) const {
  return !is_in_unit(parameter) || shards_->has_rows(parameter);
}

const HeldTensor& GradientBuffers::held(std::size_t parameter) const {
  return shards_ ? shards_->shard(parameter) : parameters_[parameter];
}

}  // namespace gantry
