// Measures the overhead of the executor: microseconds and heap allocations
// per action, sends and receives included, with stages that compute nothing,
// on threads. Prints one JSON line per schedule and number of pipeline ranks.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/launch/launch.h"
#include "gantry/pipeline/executor.h"
#include "gantry/tensors/libtorch.h"

namespace {

thread_local long allocations = 0;  // heap allocations of this thread

// Stages without computation: every forward returns the same activation, every backward the same gradient.
class EmptyStages final : public gantry::StageRuntime {
 public:
  explicit EmptyStages(int stages) : stages_(stages) {}
  gantry::StageOutput forward(int stage, int, gantry::TensorDict) override {
    if (stage + 1 == stages_) return {};
    return {{{"x", hidden_}}, {}};
  }
  gantry::TensorDict backward(int stage, int, const gantry::TensorDict&, const gantry::StageOutput&,
                              const gantry::TensorDict&) override {
    return stage == 0 ? gantry::TensorDict() : gantry::TensorDict{{"x", gradient_}};
  }
  gantry::TensorDict backward_input(int stage, int microbatch, const gantry::TensorDict& input,
                                    const gantry::StageOutput& output, const gantry::TensorDict& gradients) override {
    return backward(stage, microbatch, input, output, gradients);
  }
  void backward_weight(int, int) override {}
  std::string shape_key(int) const override { return key_; }
  bool needs_gradients() const override { return true; }

 private:
  int stages_;
  std::string key_ = "one";
  torch::Tensor hidden_ = torch::ones({4}).requires_grad_(), gradient_ = torch::ones({4});
};

void measure(const char* name, int ranks, int microbatches) {
  gantry::Config config;
  config.parallel.pipeline = ranks;
  gantry::launch(config, [&](gantry::World& world) {
    gantry::ProcessGroupMesh mesh(world);
    gantry::StageLink link(mesh["pp"]);
    const auto lowered = gantry::schedule::lower(gantry::schedule::generate(name, ranks, microbatches));
    gantry::schedule::Executor executor(lowered, mesh["pp"].rank(), link);
    EmptyStages stages(lowered.stages());
    const std::size_t actions = lowered.actions[mesh["pp"].rank()].size();
    std::vector<double> rounds;
    long allocated = 0;
    for (int round = 0; round < 12; ++round) {
      mesh.world_group().barrier().wait();
      const long before = allocations;
      const auto start = std::chrono::steady_clock::now();
      executor.run(stages);
      rounds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      allocated = allocations - before;
    }
    std::sort(rounds.begin(), rounds.end());
    if (world.is_main())
      std::printf(
          "{\"schedule\": \"%s\", \"ranks\": %d, \"actions\": %zu, \"microseconds_an_action\": %.2f, "
          "\"allocations_an_action\": %.1f}\n",
          name, ranks, actions, 1e6 * rounds[rounds.size() / 2] / static_cast<double>(actions),
          static_cast<double>(allocated) / static_cast<double>(actions));
  });
}

}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

int main() {
  for (const char* name : {"1f1b", "zb_h1"})
    for (const int ranks : {1, 2, 4}) measure(name, ranks, 256);
}
