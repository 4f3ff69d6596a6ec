// Fully sharded parameters in a plain loop over LibTorch's modules, like PyTorch's fully_shard: each rank stores some
// rows of every parameter, and its optimizer updates these rows. Two threads by default; N processes under mpirun -n N.
#include <cstdio>

#include "gantry/booster/gantry.h"
#include "gantry/plugins/fully_shard.h"

namespace {

constexpr int kLayers = 4, kSamples = 24;  // samples of a global batch

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    for (int i = 0; i < kLayers; ++i) layers->push_back(torch::nn::Linear(10, 10));
    register_module("layers", layers);
    head = register_module("head", torch::nn::Linear(10, 5));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = x + torch::tanh(layer->as<torch::nn::Linear>()->forward(x));
    return head(x);
  }
  torch::nn::ModuleList layers;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Mlp);

}  // namespace

int main() {
  gantry::Config config;
  const char* launched = std::getenv("OMPI_COMM_WORLD_SIZE");
  config.parallel.data = launched ? std::atoi(launched) : 2;
  return gantry::launch(config, [](gantry::World& world) {
    gantry::ProcessGroupMesh mesh(world);
    auto model = [] {
      const gantry::DeferredInit deferred;  // no rank ever holds the full model
      return Mlp();
    }();
    auto sharded = gantry::fully_shard(*model, mesh["dp"], {.units = {"layers.*"}});
    torch::optim::AdamW optimizer(sharded.parameters(), torch::optim::AdamWOptions(1e-2));
    const std::int64_t mine = kSamples / mesh.size("dp");
    double loss = 0;
    for (int step = 0; step < 100; ++step) {
      const torch::Tensor batch = torch::sin(torch::arange(kSamples * 10) * (1.0 + step % 5)).view({kSamples, 10});
      const torch::Tensor x = batch.narrow(0, mesh.coordinate("dp") * mine, mine);  // this rank's samples
      const torch::Tensor error = torch::mse_loss(model(x), x.narrow(1, 0, 5));
      error.backward();  // gradients: the mean over the ranks, of this rank's rows
      optimizer.step();
      optimizer.zero_grad();
      loss = gantry::all_reduce_number(mesh["dp"], error.item<double>()) / mesh.size("dp");
      if (world.is_main() && step % 25 == 0) std::printf("step %2d: loss %.4f\n", step, loss);
    }
    if (world.is_main())
      std::printf("end:     loss %.4f, weight here %ld x 10 of 10 x 10\n", loss,
                  sharded.named_parameters().at("layers.0.weight").size(0));
    if (loss > 0.1) throw gantry::NumericalError("fully_sharded: the model did not learn");
  });
}
