// Gathers the results of all samples of a step, for losses that compare samples with each other.
#pragma once

#include <torch/nn/module.h>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Identity until set_replicas(). After that, forward() gathers the samples of all replicas. A step of a model with this
// module must have one stage and one microbatch, which the code that runs it checks.
class GatherSamplesImpl : public torch::nn::Module {
 public:
  struct Gathered {
    torch::Tensor all;       // [samples of all replicas, ...]
    std::int64_t first = 0;  // index of this replica's first sample
  };
  // [samples, ...]. Collective over the replicas, forward and backward: a gradient is the sum over the replicas.
  Gathered forward(const torch::Tensor& own) const;
  void set_replicas(ProcessGroup& replicas) { replicas_ = &replicas; }  // not owned

 private:
  ProcessGroup* replicas_ = nullptr;
};
TORCH_MODULE(GatherSamples);

}  // namespace gantry::nn
