// The graph of one (stage, microbatch), split between the parts of its layers, so that its backward runs in
// steps, from the last part to the first. Other computations can run between two steps. At a split, each
// entry of the state and each loss that was added before continues as a leaf. The next step of the backward
// starts with the gradients of these leaves.
#pragma once

#include <functional>
#include <vector>

#include "gantry/nn/layer_watch.h"
#include "gantry/pipeline/stage_runtime.h"

namespace gantry {

class SplitBackward final : public LayerWatch {
 public:
  // Called before and after the layers. `losses`: the losses that the layers add, used until end_forward();
  // not owned. `meanwhile` runs after each part. `result`: the output of the stage.
  void begin_forward(TensorDict* losses, std::function<void()> meanwhile);
  void end_forward(TensorDict& result);
  bool splits() const override { return true; }
  TensorDict after_part(const TensorDict& state) override;

  // Sets the roots from which run_backward() would start. Call it once. The output of the stage is not needed
  // afterwards.
  void begin(BackwardRoots from);
  bool has_begun() const { return has_begun_; }
  // Runs the next step, if there is one, and returns whether more steps remain.
  bool step();

  void before_forward(int /*layer*/) override {}
  void after_forward(int /*layer*/) override {}
  void before_backward(int /*layer*/) override {}
  void after_backward(int /*layer*/) override {}

 private:
  struct Split {
    std::vector<torch::Tensor> ends, leaves;
  };
  static torch::Tensor leaf_behind(const torch::Tensor& end, Split& split);

  TensorDict* losses_ = nullptr;
  std::function<void()> meanwhile_;
  std::vector<Split> splits_;
  BackwardRoots from_;
  bool has_begun_ = false;
};

}  // namespace gantry
