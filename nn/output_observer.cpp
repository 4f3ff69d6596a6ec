#include "gantry/nn/output_observer.h"

#include "gantry/nn/forward.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

ObservedForward::ObservedForward(OutputObserver* observer, std::int64_t first, std::int64_t samples)
    : observer_(observer) {
  if (observer_) observer_->begin(first, samples);
}
ObservedForward::~ObservedForward() {
  if (observer_) observer_->end();
}

torch::Tensor observed(const torch::nn::Module& module, torch::Tensor output) {
  if (OutputObserver* observer = forward_now().observer) observer->module_output(module, output);
  return output;
}

}  // namespace gantry::nn
