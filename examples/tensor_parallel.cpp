// The classic example of tensor parallelism: an MLP of a Column and a Row layer in a plain training loop. Two threads
// by default; N processes under mpirun -n N.
#include <cstdio>

#include "gantry/booster/gantry.h"
#include "gantry/policies/sharder.h"

namespace {

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    up = register_module("up", gantry::nn::Linear(10, 32));
    down = register_module("down", gantry::nn::Linear(32, 5));
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::relu(up(x))); }
  gantry::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Mlp);

}  // namespace

int main() {
  gantry::Config config;
  const char* launched = std::getenv("OMPI_COMM_WORLD_SIZE");
  config.parallel.tensor = launched ? std::atoi(launched) : 2;
  return gantry::launch(config, [](gantry::World& world) {
    gantry::ProcessGroupMesh mesh(world);
    auto model = [] {
      const gantry::DeferredInit deferred;  // same initial weights for any number of ranks
      return Mlp();
    }();
    gantry::parallelize_module(*model, mesh["tp"], {{"up", gantry::Column{}}, {"down", gantry::Row{}}});
    gantry::materialize(*model, /*seed=*/1);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
    double loss = 0;
    for (int step = 0; step < 100; ++step) {
      const torch::Tensor x = torch::sin(torch::arange(20 * 10) * (1.0 + step % 5)).view({20, 10});
      const torch::Tensor error = torch::mse_loss(model(x), x.narrow(1, 0, 5));
      optimizer.zero_grad();
      error.backward();
      optimizer.step();
      loss = error.item<double>();
      if (world.is_main() && step % 25 == 0) std::printf("step %2d: loss %.4f\n", step, loss);
    }
    if (world.is_main())
      std::printf("end:     loss %.4f, weight here %ld x %ld of 32 x 10\n", loss, model->up->weight.size(0),
                  model->up->weight.size(1));
  });
}
