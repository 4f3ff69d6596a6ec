// Who is told what modules compute while a stage's forward runs: for comparing layouts. LibTorch's C++ modules have no
// hooks, so Gantry's Linear, Embedding and norms, StageContext::run_layers and the step tell it themselves. Modules
// find it in nn/forward.h. In training nobody listens, and a module then looks at one pointer.
#pragma once

#include <cstdint>
#include <string>

#include <torch/nn/module.h>

namespace gantry::nn {

class OutputObserver {
 public:
  virtual ~OutputObserver() = default;
  // The forward of one stage begins, for the samples [first, first + samples) of the global batch. Recomputations are
  // not reported.
  virtual void begin(std::int64_t first, std::int64_t samples) = 0;
  virtual void end() = 0;
  virtual void module_output(const torch::nn::Module& module, const torch::Tensor& output) = 0;
  // `layer`: counted over all lists of layers.
  virtual void layer_output(int layer, const torch::Tensor& output) = 0;
  virtual void model_output(const std::string& name, const torch::Tensor& output) = 0;
};

// A stage's forward, for its lifetime.
class ObservedForward {
 public:
  // `observer` is not owned, and may be null.
  ObservedForward(OutputObserver* observer, std::int64_t first, std::int64_t samples);
  ~ObservedForward();
  ObservedForward(const ObservedForward&) = delete;
  ObservedForward& operator=(const ObservedForward&) = delete;

 private:
  OutputObserver* observer_;
};

// Reports an output, and gives it back. A module of one's own may call it at the end of its forward.
torch::Tensor observed(const torch::nn::Module& module, torch::Tensor output);

}  // namespace gantry::nn
