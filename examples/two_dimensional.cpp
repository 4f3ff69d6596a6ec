// Two-dimensional parallelism in a plain loop: each of two replicas is split over two tensor-parallel ranks. Four
// threads by default; under mpirun -n N, N / 2 replicas.
#include <cstdio>

#include <torch/torch.h>

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

// The mean of every gradient over the replicas.
void average(MlpImpl& model, gantry::ProcessGroup& replicas) {
  for (auto& parameter : model.parameters()) {
    torch::Tensor gradient = parameter.mutable_grad();
    replicas.all_reduce(gradient).wait();
    gradient.div_(replicas.size());
  }
}

}  // namespace

int main() {
  gantry::Config config;
  const char* launched = std::getenv("OMPI_COMM_WORLD_SIZE");
  config.parallel.tensor = kTensor;
  config.parallel.data = launched ? std::atoi(launched) / kTensor : 2;
  return gantry::launch(config, [](gantry::World& world) {
    gantry::ProcessGroupMesh mesh(world);
    if (world.is_main()) std::printf("mesh: %s\n", mesh.mesh().describe().c_str());
    auto model = [] {
      const gantry::DeferredInit deferred;
      return Mlp();
    }();
    gantry::parallelize_module(*model, mesh["tp"], {{"up", gantry::Column{}}, {"down", gantry::Row{}}});
    gantry::materialize(*model, /*seed=*/1);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
    const std::int64_t mine = kSamples / mesh.size("dp");
    double loss = 0;
    for (int step = 0; step < 100; ++step) {
      const torch::Tensor batch = torch::sin(torch::arange(kSamples * 10) * (1.0 + step % 5)).view({kSamples, 10});
      const torch::Tensor x = batch.narrow(0, mesh.coordinate("dp") * mine, mine);  // this replica's samples
      const torch::Tensor error = torch::mse_loss(model(x), x.narrow(1, 0, 5));
      optimizer.zero_grad();
      error.backward();
      average(*model, mesh["dp"]);
      optimizer.step();
      loss = gantry::all_reduce_number(mesh["dp"], error.item<double>()) / mesh.size("dp");
      if (world.is_main() && step % 25 == 0) std::printf("step %2d: loss %.4f\n", step, loss);
    }
    if (world.is_main()) std::printf("end:     loss %.4f\n", loss);
    if (loss > 0.1) throw gantry::NumericalError("two_dimensional: the model did not learn");
  });
}
