// Where gradients live: flat buffers, one for each dtype and set of axes over which they are summed. Every held
// parameter's gradient is a view into one, so the sync is one collective a buffer and nothing is copied.
//
// Between syncs the buffers hold unreduced sums. After a sync without zero_grad the reduced sums are put aside, so that
// the next sync never reduces them twice.
#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Parameters that several pipeline ranks hold: their gradients are summed over `group` before anything else.
struct SharedGradient {
  std::size_t parameter = 0;  // index into the held parameters
  ProcessGroup* group = nullptr;
};

class GradientBuffers {
 public:
  // Parameters keep their order. Attaches at once.
  GradientBuffers(std::vector<HeldTensor> parameters, std::vector<SharedGradient> shared);

  // Makes every parameter's gradient a view into its buffer again (a zero_grad of the user's may have removed it).
  // Called before a step's first backward; puts reduced sums aside if there are any.
  void begin_accumulation();

  // Sums elements that tp ranks share, then over shared stages, then over each parameter's gradient axes, then
  // multiplies by `factor`, then adds what was put aside. Collective over those axes. Once for each accumulation.
  void sync(const ProcessGroupMesh& mesh, double factor);

  void zero();
  void scale(double factor);
  const std::vector<HeldTensor>& parameters() const { return parameters_; }
  const std::vector<SharedGradient>& shared() const { return shared_; }
  const torch::Tensor& gradient(std::size_t parameter) const { return views_[parameter]; }

 private:
  struct Buffer {
    std::vector<std::string> axes;
    torch::Tensor flat;
    torch::Tensor put_aside;  // reduced sums of an earlier sync, or undefined
  };

  std::vector<HeldTensor> parameters_;
  std::vector<SharedGradient> shared_;
  std::vector<Buffer> buffers_;
  std::vector<torch::Tensor> views_;
  bool reduced_ = false;  // the buffers hold reduced sums
  bool zeroed_ = true;
};

}  // namespace gantry
