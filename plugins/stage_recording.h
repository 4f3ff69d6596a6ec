// The work of the device for one microbatch of a stage, captured once (tensors/device_graph.h) and replayed
// for others. The host then issues a few commands in place of every kernel.
//
// A recording serves one microbatch in flight at a time. Its inputs, the tensors that its forward saves and
// its outputs are at the addresses of the capture, in memory of the recording. Inputs are copied into this
// memory, and gradients of inputs are copied out. The autograd graph of the captured forward exists as long
// as the recording, and keeps the tensors that the backward reads.
//
// Arguments that kernels receive by value are captured too. Values that differ between steps are in memory:
// tokens, the boundary, gradients, and the seed of the loss. Hooks of the captured backward run during the
// capture, and not in replays.
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
  // The results of a forward, in memory of the recording. The last stage has the loss and the requested
  // outputs, the other stages have `boundary`.
  struct Made {
    TensorDict boundary, outputs;
    std::optional<Loss> loss;
  };
  using Forward =
      std::function<Made(const TensorDict& batch, const TensorDict& input, nn::WeightGradientStore& weight_gradients)>;

  // `parameters`: the parameters of the stage.
  StageRecording(int stage, std::vector<torch::Tensor> parameters, torch::Device device)
      : stage_(stage), parameters_(std::move(parameters)), device_(device) {}

  // Runs the stage on copies of the arguments. The first call captures `compute`. If the host knows that a
  // mask hides nothing, it also knows this during the capture. Throws ConfigError if the work cannot be
  // captured.
  const Made& forward(const TensorDict& batch, const TensorDict& input, const Forward& compute);
  // Called after forward(): returns copies of the gradients of `input`. Gradients of parameters are
  // accumulated or, if the backward is split, left to backward_weight(). `seed`: gradient of the loss. The
  // set of gradients and `is_split` must be the same as in the first call.
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
  std::vector<c10::Storage> used_;  // storages that the graphs use and that other owners might release

  TensorDict batch_, input_;
  Made made_;
  TensorDict gradients_;  // gradients of made_.boundary; undefined if none is passed
  torch::Tensor seed_;    // gradient of made_.loss
  double seed_value_ = 0;
  // `split_work_` is the work that backward_weight() captures. It holds the tensors that its kernels read.
  nn::WeightGradientStore store_, split_work_;
  std::unique_ptr<DeviceGraph> forward_, backward_, weights_;
};

// True if the host knows that the mask hides nothing. The choice of kernels depends on this.
bool is_known_to_hide_nothing(const std::string& name, const torch::Tensor& entry);

}  // namespace gantry
