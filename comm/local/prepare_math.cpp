#include "gantry/comm/local/prepare_math.h"

#include <mutex>

#include <torch/torch.h>

namespace gantry {

void prepare_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    const torch::NoGradGuard no_grad;
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
      const torch::Tensor square = torch::full({32, 32}, 0.5, type);
      for (const torch::Tensor& one : {square.cos(), square.sin(), square.exp(), square.tanh(), square.log(),
                                       square.sqrt(), square.erf(), torch::pow(square, square), square.matmul(square)})
        one.sum().item<double>();
    }
  });
}

}  // namespace gantry
