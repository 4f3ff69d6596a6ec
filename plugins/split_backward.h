// The graph of one (stage, microbatch), split between the parts of its layers, so that its backward runs step by step,
// from the last part to the first. Between two steps others may be computed. Each entry of the state, and each loss
// that was added by then, goes on as a leaf; that leaf's gradient is where the next step begins.
#pragma once

#include <functional>
#include <vector>

#include "gantry/nn/layer_watch.h"
#include "gantry/pipeline/stage_runtime.h"

namespace gantry {

class SplitBackward final : public LayerWatch {
 public:
  // Around the layers. `losses`: what they add, until their end; not owned. `meanwhile` runs after each part. `result`:
  // what the stage gives.
  void begin_forward(TensorDict* losses, std::function<void()> meanwhile);
  void end_forward(TensorDict& result);
  bool splits() const override { return true; }
  TensorDict after_part(const TensorDict& state) override;

  // What run_backward would begin with. Once; what then leads to the output is not needed any more.
  void begin(BackwardRoots from);
  bool has_begun() const { return has_begun_; }
  // Runs the next step, if any is left, and says whether more are.
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
