// Two-dimensional parallelism in a plain loop: two replicas, each sharded over two tensor-parallel ranks. Four threads
// by default; N / 2 replicas under mpirun -n N.
#include <cstdio>

#include "gantry/booster/gantry.h"
#include "gantry/policies/sharder.h"

namespace {

constexpr int kTensor = 2, kSamples = 24;  // samples of a global batch

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
  config.parallel.tensor = kTensor;
  config.parallel.data = launched ? std::atoi(launched) / kTensor : 2;
  return gantry::launch(config, [&](gantry::World& world) {
    auto model = [] {
      const gantry::DeferredInit deferred;
      return Mlp();
    }();
    auto optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-2));
    const gantry::ShardPlan plan = {{"up", gantry::Column{}}, {"down", gantry::Row{}}};
    auto [booster, boosted] = gantry::initialize(model, config, {.optimizer = optimizer, .plan = plan});
    const gantry::ProcessGroupMesh& mesh = booster.mesh();
    if (world.is_main()) std::printf("mesh: %s\n", mesh.mesh().describe().c_str());
    const std::int64_t mine = kSamples / mesh.size("dp");
    double loss = 0;
    for (int step = 0; step < 100; ++step) {
      const torch::Tensor batch = torch::sin(torch::arange(kSamples * 10) * (1.0 + step % 5)).view({kSamples, 10});
      const torch::Tensor x = batch.narrow(0, mesh.coordinate("dp") * mine, mine);  // this replica's samples
      const torch::Tensor error = torch::mse_loss(model(x), x.narrow(1, 0, 5));
      error.backward();
      booster.sync_gradients(boosted);  // the mean over the replicas
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
      loss = gantry::all_reduce_number(mesh["dp"], error.item<double>()) / mesh.size("dp");
      if (world.is_main() && step % 25 == 0) std::printf("step %2d: loss %.4f\n", step, loss);
    }
    if (world.is_main()) std::printf("end:     loss %.4f\n", loss);
    if (loss > 0.1) throw gantry::NumericalError("two_dimensional: the model did not learn");
  });
}
