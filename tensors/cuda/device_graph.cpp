// CUDA's graphs by LibTorch's own class, which no version up to 2.14 has among those that at::accelerator::Graph makes.
#include "gantry/tensors/device_graph.h"

#include <ATen/cuda/CUDAGraph.h>

namespace gantry {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  // What other threads of the process call meanwhile (queries of events, allocations for other streams) is theirs.
  void begin(GraphPool pool) override { graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal); }
  void end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }
  GraphPool pool() const override { return graph_.pool(); }

 private:
  mutable at::cuda::CUDAGraph graph_;  // whose pool() is not const
};

[[maybe_unused]] const bool cuda_graphs_registered = register_device_graphs(
    c10::DeviceType::CUDA, []() -> std::unique_ptr<DeviceGraph> { return std::make_unique<CudaGraph>(); });

}  // namespace
}  // namespace gantry
