#include "gantry/nn/output_observer.h"

#include <utility>

#include <torch/torch.h>

namespace gantry::nn {
namespace {

thread_local OutputObserver* current_output_observer = nullptr;

}  // namespace

OutputObserver* output_observer() { return current_output_observer; }

OutputObserverGuard::OutputObserverGuard(OutputObserver* observer)
    : former_(std::exchange(current_output_observer, observer)) {}
OutputObserverGuard::~OutputObserverGuard() { current_output_observer = former_; }

ObservedForward::ObservedForward(std::int64_t first, std::int64_t samples) : observer_(current_output_observer) {
  if (observer_) observer_->begin(first, samples);
}
ObservedForward::~ObservedForward() {
  if (observer_) observer_->end();
}

torch::Tensor observed(const torch::nn::Module& module, torch::Tensor output) {
  if (current_output_observer) current_output_observer->module_output(module, output);
  return output;
}

torch::Tensor observed_layer(int layer, torch::Tensor output) {
  if (current_output_observer) current_output_observer->layer_output(layer, output);
  return output;
}

}  // namespace gantry::nn
