// Weight gradients: added straight into `.grad`, in one way for every layout, so that bits don't depend on it; now, or
// later where the schedule splits the backward (Qi et al., arXiv 2401.10241).
#pragma once

#include <functional>
#include <vector>

#include <torch/types.h>

namespace gantry::nn {

// parameter.grad, to be added to: made zero if there is none yet.
torch::Tensor& gradient_of(const torch::Tensor& parameter);

// The weight gradients of one (stage, microbatch) that are still to be computed. Layers take the store of their forward
// along (nn/forward.h), and put their work into it while it collects. Modules of other libraries compute
// theirs with the input's gradient, which is right as well. Used by one thread at a time. It outlives the graph that
// the forward makes.
class WeightGradientStore {
 public:
  void collect(bool on) { collects_ = on; }
  // Runs `work` now, or keeps it while the store collects.
  void add(std::function<void()> work);
  // Runs what was kept, in that order, and lets go of what it held; `after_each` sees what each has added.
  void run(const std::function<void()>& after_each = {});
  std::size_t size() const { return kept_.size(); }

 private:
  std::vector<std::function<void()>> kept_;
  bool collects_ = false;
};

// Runs `work` now where `store` is null, else store->add(work).
inline void now_or_later(WeightGradientStore* store, std::function<void()> work) {
  if (store)
    store->add(std::move(work));
  else
    work();
}

// into += a b, also where `into` has a wider type than they. A device that has such a product adds what it summed in
// float32; elsewhere the product is rounded to their type before.
void add_product(torch::Tensor& into, const torch::Tensor& a, const torch::Tensor& b);

// The gradient of a weight or bias: into .grad of a leaf, now or when the store is emptied (then undefined is
// returned), else returned.
torch::Tensor give_gradient(const torch::Tensor& parameter, WeightGradientStore* store,
                            std::function<void(torch::Tensor&)> add, const std::function<torch::Tensor()>& make);

}  // namespace gantry::nn
