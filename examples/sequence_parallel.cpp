// PyTorch's sequence-parallel example: the rows of the input are sharded over the ranks, all-gathered before the Column
// layer and reduce-scattered after the Row layer. Writes a profiler trace of each rank for each of two cycles of steps.
//
// usage: sequence_parallel [DIRECTORY]   (writes traces to DIRECTORY/tensorboard/rank_R; default: log)
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "gantry/booster/gantry.h"
#include "gantry/policies/sharder.h"
#include "gantry/profiling/profiler.h"

namespace {

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl() {
    in_proj = register_module("in_proj", gantry::nn::Linear(10, 32));
    out_proj = register_module("out_proj", gantry::nn::Linear(32, 5));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out_proj(torch::relu(in_proj(x))); }
  gantry::nn::Linear in_proj{nullptr}, out_proj{nullptr};
};
TORCH_MODULE(ToyModel);

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = std::filesystem::path(argc > 1 ? argv[1] : "log") / "tensorboard";
  gantry::Config config;
  const char* launched = std::getenv("OMPI_COMM_WORLD_SIZE");
  config.parallel.tensor = launched ? std::atoi(launched) : 2;
  return gantry::launch(config, [&](gantry::World& world) {
    gantry::ProcessGroupMesh mesh(world);
    if (world.is_main()) std::printf("mesh: %s\n", mesh.mesh().describe().c_str());
    auto model = [] {
      const gantry::DeferredInit deferred;
      return ToyModel();
    }();
    gantry::parallelize_module(*model, mesh["tp"],
                               {{"in_proj", gantry::Column{.input = gantry::Shard{0}}},
                                {"out_proj", gantry::Row{.output = gantry::Shard{0}}}});
    gantry::materialize(*model, /*seed=*/1);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.25));

    const auto write = [&](const gantry::Profile& profile) {
      const std::string rank = std::to_string(world.rank()), cycle = std::to_string(profile.cycle);
      std::filesystem::create_directories(folder / ("rank_" + rank));
      std::ofstream(folder / ("rank_" + rank) / ("cycle_" + cycle + ".pt.trace.json"))
          << gantry::chrome_trace(profile, "rank " + rank, world.rank());
      if (world.is_main()) std::printf("%s", gantry::operator_table(profile, 10).c_str());
    };
    gantry::Profiler profiler({.wait = 1, .warmup = 1, .active = 3, .repeat = 2}, write,
                              [&] { mesh.world_group().barrier().wait(); });
    if (world.is_main()) std::printf("Sequence Parallel training starting...\n");
    for (int step = 0; step < 10; ++step) {
      // This rank's shard of a batch with 20 rows per rank.
      const torch::Tensor rows = torch::sin(torch::arange(20 * 10) * (1.0 + step + world.rank())).view({20, 10});
      optimizer.zero_grad();
      model(rows).sum().backward();
      optimizer.step();
      profiler.step();
      if (world.is_main()) std::printf("iter %d completed\n", step);
    }
    if (world.is_main()) std::printf("completed! Traces are in %s\n", folder.c_str());
  });
}
