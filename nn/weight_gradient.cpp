#include "gantry/nn/weight_gradient.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "gantry/tensors/lazy_gradient.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr std::int64_t kElementsAtOnce = 1 << 16;

// True if the device has a product of half precisions with a float32 result. LibTorch has it for CUDA only.
bool multiplies_into(const torch::Tensor& into, const torch::Tensor& a) {
  static const auto kProduct = c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "dtype_out");
  const bool is_low = a.scalar_type() == torch::kBFloat16 || a.scalar_type() == torch::kFloat16;
  return into.scalar_type() == torch::kFloat32 && is_low &&
         kProduct.hasKernelForDispatchKey(c10::legacyExtractDispatchKey(into.key_set()));
}

}  // namespace

torch::Tensor& gradient_of(const torch::Tensor& parameter) {
  bring_lazy_gradient(parameter);
  auto& gradient = parameter.mutable_grad();
  if (!gradient.defined()) gradient = torch::zeros_like(parameter, at::MemoryFormat::Contiguous).detach();
  return gradient;
}

void WeightGradientStore::add(std::function<void()> work) {
  if (collects_)
    kept_.push_back(std::move(work));
  else
    work();
}

void WeightGradientStore::run(const std::function<void()>& after_each) {
  const torch::NoGradGuard no_grad;
  for (auto& work : std::exchange(kept_, {})) {
    work();
    work = {};
    if (after_each) after_each();
  }
}

void add_product(torch::Tensor& into, const torch::Tensor& a, const torch::Tensor& b) {
  if (into.scalar_type() == a.scalar_type()) {
    into.addmm_(a, b);
    return;
  }
  if (multiplies_into(into, a)) {  // the product is not rounded to the lower type
    at::addmm_out(into, into, a, b, into.scalar_type());
    return;
  }
  // In blocks on the CPU: an addition of two types copies one operand, which is large if the vocabulary is
  // large.
  const torch::Tensor product = at::mm(a, b);
  const std::int64_t rows = into.size(0);
  const std::int64_t block =
      into.is_cpu() ? std::max<std::int64_t>(1, kElementsAtOnce / std::max<std::int64_t>(1, into.size(1))) : rows;
  for (std::int64_t begin = 0; begin < rows; begin += block) {
    const std::int64_t count = std::min(block, rows - begin);
    into.narrow(0, begin, count).add_(product.narrow(0, begin, count));
  }
}

namespace {

// If saved tensors are recorded (tensors/saved_tensors.h), a backward gets a parameter as another tensor
// object. The node that accumulates its gradients has the parameter itself.
torch::Tensor leaf_of(const torch::Tensor& parameter) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  const auto* node = dynamic_cast<const torch::autograd::AccumulateGrad*>(accumulator.get());
  return node ? node->variable : parameter;
}

}  // namespace

torch::Tensor give_gradient(const torch::Tensor& parameter, WeightGradientStore* store,
                            std::function<void(torch::Tensor&)> add, const std::function<torch::Tensor()>& make) {
  if (!parameter.defined() || !parameter.requires_grad()) return {};
  if (!parameter.is_leaf()) return make();
  now_or_later(store, [leaf = leaf_of(parameter), add = std::move(add)] { add(gradient_of(leaf)); });
  return {};
}

}  // namespace gantry::nn
