// A small user-defined model with a correct policy and several policies with mistakes.
#pragma once

#include <stdexcept>

#include "gantry/nn/linear.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/deferred_init.h"
#include "tiny_rig.h"

namespace gantry::testing {

struct StackImpl : torch::nn::Module {
  explicit StackImpl(int depth = 4) {
    stem = register_module("stem", nn::Linear(12, 8));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < depth; ++i) blocks->push_back(nn::Linear(8, 8));
    head = register_module("head", nn::Linear(8, 6));
  }
  nn::Linear stem{nullptr}, head{nullptr};
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Stack);

class StackPolicy : public PolicyFor<StackImpl> {
 public:
  std::string name() const override { return "StackPolicy"; }
  ModelSplit split(const StackImpl&) const override {
    return {.shards = {{"head", Column{}}},
            .stages = {.first = {"stem"}, .repeated = "blocks", .last = {"head"}},
            .split_outputs = {{"logits", "head"}}};
  }
  TensorDict forward(StackImpl& model, const StageContext& stage, TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.stem(in.at("x").flatten(1)) : in.at("hidden");
    hidden = stage.run_layers(hidden, [&](int layer, const torch::Tensor& x) { return block(model, layer, x); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", model.head(hidden)}};
  }
  virtual torch::Tensor block(StackImpl& model, int layer, const torch::Tensor& x) const {
    return torch::tanh(model.blocks->at<nn::LinearImpl>(layer).forward(x));
  }
};

class SkipsALayer final : public StackPolicy {
 public:
  torch::Tensor block(StackImpl& model, int layer, const torch::Tensor& x) const override {
    return layer == 1 ? x : StackPolicy::block(model, layer, x);
  }
};

class ThrowsInALayer final : public StackPolicy {
 public:
  torch::Tensor block(StackImpl& model, int layer, const torch::Tensor& x) const override {
    return StackPolicy::block(model, layer, layer == 2 ? x.narrow(1, 0, 5) : x);
  }
};

class LoopsItself final : public StackPolicy {
 public:
  TensorDict forward(StackImpl& model, const StageContext& stage, TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.stem(in.at("x").flatten(1)) : in.at("hidden");
    for (const int layer : stage.layers()) hidden = block(model, layer, hidden);
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", model.head(hidden)}};
  }
};

// Layers have two parts. The second part of layer 2 throws.
class ThrowsInAPart final : public StackPolicy {
 public:
  TensorDict forward(StackImpl& model, const StageContext& stage, TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.stem(in.at("x").flatten(1)) : in.at("hidden");
    hidden = stage.run_layers(hidden, [&](int layer) {
      return LayerParts{{"twice", [](const torch::Tensor& x) { return x * 2; }},
                        {"block", [&model, layer, this](const torch::Tensor& x) {
                           return block(model, layer, layer == 2 ? x.narrow(1, 0, 5) : x);
                         }}};
    });
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", model.head(hidden)}};
  }
};

class ForgetsSplitOutputs final : public StackPolicy {
 public:
  ModelSplit split(const StackImpl& model) const override {
    ModelSplit split = StackPolicy::split(model);
    split.split_outputs = {};
    return split;
  }
};

class NamesNoLayers final : public StackPolicy {
 public:
  ModelSplit split(const StackImpl& model) const override {
    ModelSplit split = StackPolicy::split(model);
    split.stages.repeated = "transformer.encoder.layers";
    return split;
  }
};

inline void register_stack_policies() {
  static const bool once = [] {
    policies().add<StackPolicy>("stack");
    policies().add<SkipsALayer>("stack_skips");
    policies().add<ThrowsInALayer>("stack_throws");
    policies().add<LoopsItself>("stack_loops");
    policies().add<ThrowsInAPart>("stack_throws_in_a_part");
    policies().add<ForgetsSplitOutputs>("stack_forgets");
    policies().add<NamesNoLayers>("stack_names_none");
    return true;
  }();
  (void)once;
}

inline Config stack_config(const Layout& layout, const std::string& policy = "stack") {
  register_stack_policies();
  Config config = layout_config(layout);
  config.model.policy = policy;
  config.precision = "float64";
  config.schedule.microbatches = 2;
  config.optimizer.lr = 1e-2;
  config.optimizer.eps = 1e-3;
  config.comm.threads_per_rank = 1;
  return config;
}

inline std::shared_ptr<torch::nn::Module> build_stack(const Config& config) {
  const DeferredInit deferred;
  auto model = std::make_shared<StackImpl>();
  set_dtype(*model, dtype_of(config.precision));
  return model;
}

// Samples of 12 real numbers and one of 6 labels. All values depend only on the position in the batch.
inline TensorDict stack_batch(std::int64_t samples, torch::ScalarType type = torch::kFloat64) {
  const torch::Tensor places = torch::arange(samples * 12, torch::kFloat64).view({samples, 12});
  return {{"x", torch::sin(places * 0.7).to(type)}, {"labels", torch::arange(samples) % 6}};
}

}  // namespace gantry::testing
