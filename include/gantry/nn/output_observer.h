// Observes the outputs of modules while a stage's forward runs, to compare layouts. LibTorch's C++ modules have no
// hooks, so Gantry's Linear, Embedding and norms, StageContext::run_layers and the step call the observer themselves.
// They find it in nn/forward.h. Without an observer, the cost is one pointer check per module.
#pragma once

#include <cstdint>
#include <string>

#include <torch/nn/module.h>

namespace gantry::nn {

class OutputObserver {
 public:
  virtual ~OutputObserver() = default;
  // Called before the forward of a stage for the samples [first, first + samples) of the global batch. Recomputations
  // are not reported.
  virtual void begin(std::int64_t first, std::int64_t samples) = 0;
  virtual void end() = 0;
  virtual void module_output(const torch::nn::Module& module, const torch::Tensor& output) = 0;
  // `layer` is counted over all lists of layers.
  virtual void layer_output(int layer, const torch::Tensor& output) = 0;
  virtual void model_output(const std::string& name, const torch::Tensor& output) = 0;
  // Called for each loss that the model adds (nn/added_loss.h). `layer`: -1 between layers; `part`: empty outside of
  // named parts.
  virtual void added_loss(const std::string& /*name*/, int /*layer*/, const std::string& /*part*/) {}
};

// Calls begin() and end() of the observer at the start and end of its lifetime.
class ObservedForward {
 public:
  // `observer` is not owned and may be null.
  ObservedForward(OutputObserver* observer, std::int64_t first, std::int64_t samples);
  ~ObservedForward();
  ObservedForward(const ObservedForward&) = delete;
  ObservedForward& operator=(const ObservedForward&) = delete;

 private:
  OutputObserver* observer_;
};

// Reports an output to the observer and returns it. Your own modules can call it at the end of their forward.
torch::Tensor observed(const torch::nn::Module& module, torch::Tensor output);

}  // namespace gantry::nn
