// CUDA graphs by at::cuda::CUDAGraph. at::accelerator::Graph does not support CUDA in any LibTorch up to
// 2.14.
#include "gantry/tensors/device_graph.h"

#include <ATen/cuda/CUDAGraph.h>

namespace gantry {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  // Thread-local mode: other threads may query events and allocate for other streams during the capture.
  void begin(GraphPool pool) override { graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal); }
  void end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }
  GraphPool pool() const override { return graph_.pool(); }

 private:
  mutable at::cuda::CUDAGraph graph_;  // mutable, because its pool() is not const
};

[[maybe_unused]] const bool cuda_graphs_registered = register_device_graphs(
    c10::DeviceType::CUDA, []() -> std::unique_ptr<DeviceGraph> { return std::make_unique<CudaGraph>(); });

}  // namespace
}  // namespace gantry
