// A custom model, its policy, and its training over tp 2 x pp 2.
#include <cstdio>

#include <torch/torch.h>

#include "gantry/booster/gantry.h"
#include "gantry/policies/policy.h"

namespace {

// A stack of residual blocks that learns the sign of the sum of its inputs. Any model with repeated layers works.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width) {
    up = register_module("up", gantry::nn::Linear(width, 4 * width));
    down = register_module("down", gantry::nn::Linear(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::relu(up(x))); }
  gantry::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

struct StackImpl : torch::nn::Module {
  StackImpl(int width, int depth) {
    stem = register_module("stem", gantry::nn::Linear(width, width));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < depth; ++i) blocks->push_back(Block(width));
    head = register_module("head", gantry::nn::Linear(width, 2));
  }
  gantry::TensorDict stage_forward(const gantry::StageContext& stage, const gantry::TensorDict& in) {
    torch::Tensor hidden = stage.is_first() ? stem(in.at("x")) : in.at("hidden");
    hidden = stage.run_layers(
        hidden, [this](int layer, const torch::Tensor& x) { return blocks->at<BlockImpl>(layer).forward(x); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"scores", head(hidden)}};
  }
  gantry::nn::Linear stem{nullptr}, head{nullptr};
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Stack);

// How modules are sharded, and which modules each stage holds.
class StackPolicy final : public gantry::PolicyFor<StackImpl> {
 public:
  std::string name() const override { return "StackPolicy"; }
  gantry::ModelSplit split(const StackImpl&) const override {
    return {.shards = {{"blocks.*.up", gantry::Column{}}, {"blocks.*.down", gantry::Row{}}},
            .stages = {.first = {"stem"}, .repeated = "blocks", .last = {"head"}}};
  }
};

gantry::Batch batch_of(std::int64_t step) {
  torch::Tensor x = torch::sin(torch::arange(16 * 8).view({16, 8}) * (1.7 + 0.3 * static_cast<double>(step % 7)));
  return gantry::make_batch({{"x", x}, {"y", (x.sum(1) > 0).to(torch::kInt64)}});
}

}  // namespace

int main() {
  gantry::policies().add<StackPolicy>("stack");
  const auto config = gantry::Config::parse(
      "model: {policy: stack}\nparallel: {tensor: 2, pipeline: 2}\nschedule: {microbatches: 4}\n");
  return gantry::launch(config, [&](gantry::World& world) {
    gantry::Booster booster(std::make_unique<gantry::HybridParallelPlugin>(world, config));
    // Uses no memory yet: each rank initializes its own parameters, with the same values in every layout.
    auto model = [] {
      const gantry::DeferredInit deferred;
      return Stack(8, 4);
    }();
    auto optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), torch::optim::AdamOptions(3e-3));
    const auto criterion = [](const gantry::TensorDict& outputs, const gantry::TensorDict& batch) {
      return torch::nn::functional::cross_entropy(outputs.at("scores"), batch.at("y"));
    };
    auto boosted = booster.boost(model, optimizer, criterion);
    double loss = 0;
    for (std::int64_t step = 0; step < 120; ++step) {
      loss = *booster.execute_pipeline(batch_of(step), boosted, {.broadcast_loss = true}).loss;
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
      if (world.is_main() && step % 40 == 0) std::printf("step %2d: loss %.4f\n", static_cast<int>(step), loss);
    }
    if (world.is_main()) std::printf("end:     loss %.4f\n", loss);
    if (loss > 0.2) throw gantry::NumericalError("custom_policy: the model did not learn");
  });
}
