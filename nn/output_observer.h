// Who is told what modules compute while a stage's forward runs: for comparing layouts. LibTorch's C++ modules have no
// hooks, so Gantry's Linear, Embedding and norms, StageContext::run_layers and the step tell it themselves. In training
// nobody listens, and a module then looks at one pointer.
#pragma once

#include <cstdint>
#include <string>

#include <torch/nn/module.h>

namespace gantry::nn {

class OutputObserver {
 public:
  virtual ~OutputObserver() = default;
  // The forward of one stage begins, for the samples [first, first + samples) of the global batch. What is reported
  // outside of begin and end is a recomputation's.
  virtual void begin(std::int64_t first, std::int64_t samples) = 0;
  virtual void end() = 0;
  virtual void module_output(const torch::nn::Module& module, const torch::Tensor& output) = 0;
  virtual void layer_output(int layer, const torch::Tensor& output) = 0;
  virtual void model_output(const std::string& name, const torch::Tensor& output) = 0;
};

// This thread's; null where nobody listens.
OutputObserver* output_observer();

// Has `observer`, which is not owned, listen on this thread for its lifetime, and then the former one.
class OutputObserverGuard {
 public:
  explicit OutputObserverGuard(OutputObserver* observer);
  ~OutputObserverGuard();
  OutputObserverGuard(const OutputObserverGuard&) = delete;
  OutputObserverGuard& operator=(const OutputObserverGuard&) = delete;

 private:
  OutputObserver* former_;
};

// A stage's forward, for its lifetime.
class ObservedForward {
 public:
  ObservedForward(std::int64_t first, std::int64_t samples);
  ~ObservedForward();
  ObservedForward(const ObservedForward&) = delete;
  ObservedForward& operator=(const ObservedForward&) = delete;

 private:
  OutputObserver* observer_;
};

// Report an output, and give it back. A module of one's own may call the first at the end of its forward.
torch::Tensor observed(const torch::nn::Module& module, torch::Tensor output);
torch::Tensor observed_layer(int layer, torch::Tensor output);

}  // namespace gantry::nn
