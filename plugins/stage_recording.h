// What the device does for one microbatch of a stage, recorded once (tensors/device_graph.h) and replayed for others,
// so that the host gives a few commands in place of every kernel.
//
// A recording is of one place for microbatches in flight: its inputs, what its forward saves and what it gives lie
// where they lay when it was recorded, in memory of its own. What comes is copied in, and what goes on is copied out.
// The autograd graph of the recorded forward stays for as long as the recording does, and with it what the backward
// reads.
//
// What kernels are given by value is recorded too. What differs between steps comes by memory: tokens, the boundary,
// gradients, and the seed of the loss. Hooks of the recorded backward run when it is recorded, and never again.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/device_graph.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class StageRecording {
 public:
  // What a forward gives, where the recording has it: of any stage but the last `boundary`, of the last one the loss
  // and the outputs that are asked for.
  struct Made {
    TensorDict boundary, outputs;
    std::optional<Loss> loss;
  };
  using Forward =
      std::function<Made(const TensorDict& batch, const TensorDict& input, nn::WeightGradientStore& weight_gradients)>;

  // `parameters`: of the stage.
  StageRecording(int stage, std::vector<torch::Tensor> parameters, torch::Device device)
      : stage_(stage), parameters_(std::move(parameters)), device_(device) {}

  // Runs the stage on copies of what is given. `compute` is asked to do so the first time, while it is recorded. Masks
  // that are known to hide nothing are known so while it is. ConfigError for work that can't be recorded.
  const Made& forward(const TensorDict& batch, const TensorDict& input, const Forward& compute);
  // The gradients of `input`, after a forward: copies. Those of parameters are added, or, where the backward is split,
  // left to backward_weight. `seed`: the loss's gradient. Which gradients are given, and whether it is split, is as the
  // first time.
  TensorDict backward(const TensorDict& gradients, double seed, bool is_split);
  void backward_weight();

 private:
  void record(const char* what, std::unique_ptr<DeviceGraph>& graph, const std::function<void()>& work);
  void give_seeds(const TensorDict& gradients, double seed);
  void run_backward(bool is_split);
  void replay(DeviceGraph& graph);

  int stage_;
  std::vector<torch::Tensor> parameters_;
  torch::Device device_;
  GraphPool pool_{};
  std::vector<c10::Storage> used_;  // that others might let go of

  TensorDict batch_, input_;
  Made made_;
  TensorDict gradients_;  // of made_.boundary; undefined where none is given
  torch::Tensor seed_;    // of made_.loss
  double seed_value_ = 0;
  nn::WeightGradientStore store_, split_work_;  // what backward_weight records, which holds what its kernels read
  std::unique_ptr<DeviceGraph> forward_, backward_, weights_;
};

// A mask that the host knows to hide nothing: kernels are chosen by that.
bool is_known_to_hide_nothing(const std::string& name, const torch::Tensor& entry);

}  // namespace gantry
