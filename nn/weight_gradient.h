// Weight gradients. They are added directly to `.grad`, in the same way for every layout, so that their bits
// do not depend on the layout. If the schedule splits the backward, they are computed later (Qi et al., arXiv
// 2401.10241).
#pragma once

#include <functional>
#include <vector>

#include <torch/types.h>

namespace gantry::nn {

// Returns parameter.grad, for additions. It is created as zeros if the parameter has none.
torch::Tensor& gradient_of(const torch::Tensor& parameter);

// The weight gradients of one (stage, microbatch) that are still to be computed. Layers save the store of
// their forward (nn/forward.h), and add their work to it while it collects. Modules of other libraries
// compute their weight gradients together with the input gradient, which is also correct. Used by one thread
// at a time. It outlives the graph of the forward.
class WeightGradientStore {
 public:
  void collect(bool on) { collects_ = on; }
  // Runs `work` now, or keeps it while the store collects.
  void add(std::function<void()> work);
  // Runs the kept work in order, and releases its tensors. `after_each` is called after each piece of work.
  void run(const std::function<void()>& after_each = {});
  std::size_t size() const { return kept_.size(); }

 private:
  std::vector<std::function<void()>> kept_;
  bool collects_ = false;
};

// Runs `work` now if `store` is null; otherwise calls store->add(work).
inline void now_or_later(WeightGradientStore* store, std::function<void()> work) {
  if (store)
    store->add(std::move(work));
  else
    work();
}

// into += a b. `into` may have a wider type than a and b. Devices with such a product add the float32 result.
// Elsewhere the product is first rounded to the type of a and b.
void add_product(torch::Tensor& into, const torch::Tensor& a, const torch::Tensor& b);

// Computes the gradient of a weight or bias. The gradient of a leaf is added to its .grad, now or when the
// store runs, and an undefined tensor is returned. Otherwise the gradient is returned.
torch::Tensor give_gradient(const torch::Tensor& parameter, WeightGradientStore* store,
                            std::function<void(torch::Tensor&)> add, const std::function<torch::Tensor()>& make);

}  // namespace gantry::nn
