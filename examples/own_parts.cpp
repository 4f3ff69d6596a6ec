// A training run with a custom model, data set and optimizer: own_parts CONFIG.yaml [KEY=VALUE...]
#include "gantry/booster/gantry.h"
#include "gantry/policies/policy.h"

namespace {

// Residual blocks that learn whether the sum of the inputs is positive.
struct StackImpl : torch::nn::Module {
  StackImpl(int width, int depth) {
    stem = register_module("stem", gantry::nn::Linear(width, width));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < depth; ++i) blocks->push_back(gantry::nn::Linear(width, width));
    head = register_module("head", gantry::nn::Linear(width, 2));
  }
  gantry::nn::Linear stem{nullptr}, head{nullptr};
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Stack);

class StackPolicy final : public gantry::PolicyFor<StackImpl> {
 public:
  std::string name() const override { return "StackPolicy"; }
  gantry::ModelSplit split(const StackImpl&) const override {
    return {.stages = {.first = {"stem"}, .repeated = "blocks", .last = {"head"}}};
  }
  gantry::TensorDict forward(StackImpl& model, const gantry::StageContext& stage,
                             gantry::TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.stem(in.at("x")) : in.at("hidden");
    for (const int layer : stage.layers())
      hidden = hidden + torch::relu(model.blocks->at<gantry::nn::LinearImpl>(layer).forward(hidden));
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", model.head(hidden)}};
  }
};

// Samples of eight floats, with the label whether their sum is positive.
class Sums final : public gantry::Dataset {
 public:
  std::int64_t size() const override { return 1000; }
  std::int64_t sequence_length() const override { return 0; }
  std::vector<gantry::SampleEntry> entries() const override {
    return {{"x", 0, 8, gantry::NumberType::kFloat32}, {"labels", 0, 0, gantry::NumberType::kBool}};
  }
  void read_numbers(std::int64_t index, const gantry::NumberRow& row) const override {
    float reals[8], sum = 0;
    for (int i = 0; i < 8; ++i) sum += reals[i] = std::sin(1.7F * static_cast<float>(index * 8 + i));
    if (row.type() == gantry::NumberType::kBool)
      *row.as<bool>() = sum > 0;
    else
      std::copy_n(reals, 8, row.as<float>());
  }
};

std::shared_ptr<StackImpl> build_stack() {
  const gantry::DeferredInit deferred;  // same initial values in every layout
  return Stack(8, 4).ptr();
}

}  // namespace

int main(int argc, char** argv) {
  gantry::policies().add<StackPolicy>("stack");
  return gantry::run_main(argc, argv, [](const gantry::Config& config) {
    return gantry::train(config, [](gantry::Trainer& trainer) {
      const auto model = build_stack();
      trainer.use({.model = model,
                   .optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), 3e-3),
                   .loader = std::make_shared<gantry::DataLoader>(std::make_shared<Sums>(),
                                                                  gantry::DataLoaderOptions{.global_batch = 40})});
      // Clips each element of the gradients.
      trainer.add({.after_backward = [](const gantry::StepGradients& step) {
        for (const auto& [name, gradient] : step.gradients) gradient.clamp_(-0.5, 0.5);
      }});
      trainer.run();
    });
  });
}
