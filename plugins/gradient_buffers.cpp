#include "gantry/plugins/gradient_buffers.h"

#include <map>

#include <c10/util/strides.h>

#include "gantry/nn/overlap.h"

namespace gantry {
namespace {

// A tensor on part of `flat`'s memory that autograd does not know as a view: LibTorch's zero_grad detaches gradients in
// place, which views refuse.
torch::Tensor share_memory(const torch::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes) {
  const torch::NoGradGuard no_grad;
  torch::Tensor part = torch::empty({0}, flat.options());
  return part.set_(flat.storage(), flat.storage_offset() + offset, sizes, c10::contiguous_strides(sizes));
}

// Views begin on cache lines: matrix products give other bits on memory that is aligned otherwise, and replicas whose
// buffers also hold shards of unequal sizes would drift apart.
std::int64_t aligned(std::int64_t elements, std::size_t element_size) {
  constexpr std::int64_t kCacheLine = 64;
  const std::int64_t line = kCacheLine / static_cast<std::int64_t>(element_size);
  return (elements + line - 1) / line * line;
}

}  // namespace

GradientBuffers::GradientBuffers(std::vector<HeldTensor> parameters, std::vector<SharedGradient> shared)
    : parameters_(std::move(parameters)), shared_(std::move(shared)), views_(parameters_.size()) {
  using Key = std::pair<std::vector<std::string>, torch::ScalarType>;
  std::map<Key, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].tensor.requires_grad())
      members[{parameters_[i].placement.gradient_axes(), parameters_[i].tensor.scalar_type()}].push_back(i);

  for (const auto& [key, indices] : members) {
    std::int64_t elements = 0;
    for (const std::size_t i : indices)
      elements += aligned(parameters_[i].tensor.numel(), parameters_[i].tensor.element_size());
    Buffer buffer{
        key.first, torch::zeros({elements}, parameters_[indices.front()].tensor.options().requires_grad(false)), {}};
    std::int64_t offset = 0;
    for (const std::size_t i : indices) {
      const auto& tensor = parameters_[i].tensor;
      views_[i] = share_memory(buffer.flat, offset, tensor.sizes());
      offset += aligned(tensor.numel(), tensor.element_size());
    }
    buffers_.push_back(std::move(buffer));
  }
  begin_accumulation();
}

void GradientBuffers::begin_accumulation() {
  bool detached = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!views_[i].defined()) continue;
    auto& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined() && gradient.is_same(views_[i])) continue;
    detached = detached || !gradient.defined();
    gradient = views_[i];
  }
  // An optimizer's own zero_grad sets gradients to none: that means zero.
  if (detached && !zeroed_) zero();
  if (!reduced_) return;
  if (!zeroed_) {
    for (auto& buffer : buffers_) {
      buffer.put_aside = buffer.flat.clone();
      buffer.flat.zero_();
    }
  }
  reduced_ = false;
  zeroed_ = false;
}

void GradientBuffers::sync(const ProcessGroupMesh& mesh, double factor) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (const auto& along = parameters_[i].placement.along("tp"); views_[i].defined() && along.overlaps())
      sum_overlaps(views_[i], along, mesh["tp"]);
  for (const auto& shared : shared_) shared.group->all_reduce(views_[shared.parameter]).wait();
  std::vector<Work> works;
  for (auto& buffer : buffers_)
    if (!buffer.axes.empty()) works.push_back(mesh.group(buffer.axes).all_reduce(buffer.flat));
  for (auto& work : works) work.wait();
  if (factor != 1) scale(factor);
  for (auto& buffer : buffers_) {
    if (buffer.put_aside.defined()) buffer.flat.add_(buffer.put_aside);
    buffer.put_aside.reset();
  }
  reduced_ = true;
  zeroed_ = false;
}

void GradientBuffers::zero() {
  for (auto& buffer : buffers_) {
    buffer.flat.zero_();
    buffer.put_aside.reset();
  }
  zeroed_ = true;
  reduced_ = false;
}

void GradientBuffers::scale(double factor) {
  for (auto& buffer : buffers_) buffer.flat.mul_(factor);
}

}  // namespace gantry
