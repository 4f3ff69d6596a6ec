#include "gantry/policies/sharder.h"

#include <fstream>
#include <gtest/gtest.h>
#include <set>

#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/nn/linear.h"
#include "gantry/policies/decoder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

nlohmann::json small() {
  return {{"vocab_size", 211}, {"n_positions", 8}, {"n_embd", 24}, {"n_layer", 5}, {"n_head", 4}};
}

std::shared_ptr<models::DecoderImpl> build(const nlohmann::json& config = small()) {
  const DeferredInit deferred;
  return std::make_shared<models::DecoderImpl>(models::decoder_spec("gpt2", config));
}

std::int64_t bytes_held(const StageModule& module) {
  std::int64_t bytes = 0;
  for (const auto& held : module.parameters) bytes += held.tensor.nbytes();
  return bytes;
}

// A policy whose parts each test sets.
class BentPolicy : public PolicyFor<models::DecoderImpl> {
 public:
  std::string name() const override { return "BentPolicy"; }
  ModelSplit split(const models::DecoderImpl&) const override { return {.shards = plan, .stages = layout}; }
  SharedParameters shared_parameters(const models::DecoderImpl&) const override { return shared; }
  TensorDict forward(models::DecoderImpl&, const StageContext&, TensorDict input) const override { return input; }
  ShardPlan plan = {};
  StageLayout layout = {.first = {"wte", "wpe", "drop"}, .repeated = "h", .last = {"ln_f", "lm_head"}};
  SharedParameters shared = {{"wte.weight", "lm_head.weight"}};
};

TEST(Acceptance, D3PolicyPartsHaveDefaults) {
  const BentPolicy policy;
  const auto model = build();
  EXPECT_EQ(static_cast<const Policy&>(policy).held_layers(*model, 0, 2, {0, 2}),
            (std::vector<std::string>{"wte", "wpe", "drop", "h.0", "h.1"}));
  EXPECT_EQ(static_cast<const Policy&>(policy).held_layers(*model, 1, 2, {2, 4}),
            (std::vector<std::string>{"h.2", "h.3", "ln_f", "lm_head"}));
  EXPECT_EQ(static_cast<const Policy&>(policy).distribute_layers(10, 4), (std::vector<int>{2, 3, 3, 2}));
}

TEST(Acceptance, D5HeldLayersAloneHaveStorage) {
  std::map<std::string, int> holders;
  std::int64_t total = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const PipelineStageManager stages(rank, 4);
    const auto model = build();
    const StageModule module = shard_model(model, std::make_shared<DecoderPolicy>(), {.stages = &stages});
    for (const auto& held : module.parameters) ++holders[held.placement.name];
    std::int64_t alive = 0;
    std::set<void*> seen;
    for (const auto& parameter : model->parameters())
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) alive += parameter.nbytes();
    EXPECT_EQ(alive, bytes_held(module));
    total += alive;
  }
  EXPECT_EQ(holders.size(), 4u + 5 * 12);
  for (const auto& [name, count] : holders) EXPECT_EQ(count, name == "wte.weight" ? 2 : 1) << name;
  EXPECT_GT(total, 0);
}

TEST(Acceptance, D6APolicyOnANestedModuleIsRefused) {
  const auto model = build();
  EXPECT_NE(thrown_by<ConfigError>([&] {
              shard_model(model->named_modules()["h.0"], std::make_shared<DecoderPolicy>(), {});
            }).find("DecoderPolicy: the policy does not support models of class"),
            std::string::npos);
}

TEST(Acceptance, D7TiedWeightsAreOneParameterWithTwoStages) {
  const PipelineStageManager stages(3, 4);
  const auto model = build();
  const StageModule module = shard_model(model, std::make_shared<DecoderPolicy>(), {.stages = &stages});
  EXPECT_EQ(module.all_placements.front().name, "wte.weight");
  EXPECT_EQ(module.all_placements.front().stages, (std::vector<int>{0, 3}));
  EXPECT_EQ(module.all_placements.front().aliases, (std::vector<std::string>{"lm_head.weight"}));
  EXPECT_EQ(model->named_modules()["lm_head"]->as<nn::LinearImpl>()->weight.numel(), 211 * 24);
}

TEST(Acceptance, D9FirstValuesAreTheSameInEveryLayout) {
  const auto full = shard_model(build(), std::make_shared<DecoderPolicy>(), {.seed = 3});
  std::map<std::string, torch::Tensor> values;
  for (const auto& held : full.parameters) values[held.placement.name] = held.tensor;
  for (const int tensor : {1, 2, 3, 4})
    run_ranks({.pipeline = 2, .tensor = tensor}, [&](World&, ProcessGroupMesh& mesh) {
      const PipelineStageManager stages(mesh.coordinate("pp"), 2);
      const auto module = shard_model(build(), std::make_shared<DecoderPolicy>(),
                                      {.stages = &stages, .tensor_group = &mesh["tp"], .seed = 3});
      for (const auto& [placement, tensor] : module.parameters) {
        torch::Tensor expected = values.at(placement.name);
        if (const auto& along = placement.along("tp"); along.sharded()) {
          std::vector<torch::Tensor> parts;
          for (const Range& range : along.ranges(mesh["tp"].rank()))
            parts.push_back(expected.narrow(along.dim, range.begin, range.size()));
          expected = torch::cat(parts, along.dim);
        }
        EXPECT_TRUE(torch::equal(tensor, expected)) << placement.name;
      }
    });
}

TEST(Sharder, RefusesWhatDoesNotFitByPathAndNumbers) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    const ShardConfig config{.tensor_group = &mesh["tp"]};
    const auto refuse = [&](const std::function<void(BentPolicy&)>& bend, const std::string& said) {
      auto policy = std::make_shared<BentPolicy>();
      bend(*policy);
      const std::string message = thrown_by<ConfigError>([&] { shard_model(build(), policy, config); });
      EXPECT_NE(message.find(said), std::string::npos) << message << "\n not " << said;
    };
    refuse([](auto& p) { p.plan = {{"h.*.atn.qkv", Column{}}}; }, "the rule 'h.*.atn.qkv' matches no module");
    refuse([](auto& p) { p.plan = {{"h.*.mlp", Column{}}}; }, "h.0.mlp: a torch::nn::Module cannot be sharded");
    refuse(
        [](auto& p) {
          p.plan = {{"wte", Column{}}, {"lm_head", Column{}}};
        },
        "an Embedding cannot be sharded as Column");
    refuse([](auto& p) { p.plan = {{"h.*.attn.qkv", Vocab{}}}; }, "a Linear cannot be sharded as Vocab");
    refuse(
        [](auto& p) {
          p.plan = {{"h.*.attn.qkv", Column{.segments = 3, .unit = 24}}};
        },
        "1 units (of 24 elements) over 2 ranks");
    refuse([](auto& p) { p.plan = {{"h.*.attn.qkv", Column{.segments = 5}}}; }, "72 elements are not 5 equal segments");
    refuse([](auto& p) { p.plan = {{"h.*.mlp.up", Column{}}, {"h.0.mlp.up", Column{}}}; }, "two rules match it");
    refuse([](auto& p) { p.plan = {{"wte", Vocab{}}}; }, "only one of its modules is sharded");
    refuse([](auto& p) { p.layout.repeated = "g"; }, "the model has no module 'g'");
    refuse(
        [](auto& p) {
          p.layout.last = {"ln_f"};
          p.layout.first = {"wte", "drop"};
        },
        "wpe.weight: no stage has this parameter");
    refuse([](auto& p) { p.layout.first = {"wte", "wpo"}; }, "stage 0 has 'wpo', which the model does not have");
    refuse([](auto& p) { p.shared = {{"wte.weight", "wpe.weight"}}; }, "are 2 different tensors");
    refuse([](auto& p) { p.shared = {{"wte.weight", "lm_head.wight"}}; }, "the model has no parameter 'lm_head.wight'");
  });
  const PipelineStageManager two(0, 2), many(0, 6);
  auto policy = std::make_shared<BentPolicy>();
  policy->shared = {};
  EXPECT_NE(thrown_by<ConfigError>([&] {
              shard_model(build(), policy, {.stages = &two});
            }).find("wte.weight: stages 0 and 1 have this parameter, but it is not declared as shared"),
            std::string::npos);
  EXPECT_NE(thrown_by<ConfigError>([&] {
              shard_model(build(), std::make_shared<DecoderPolicy>(), {.stages = &many});
            }).find("5 layers over 6 stages"),
            std::string::npos);
  const auto model = build();
  shard_model(model, std::make_shared<DecoderPolicy>(), {});
  EXPECT_NE(thrown_by<ConfigError>([&] {
              shard_model(model, std::make_shared<DecoderPolicy>(), {});
            }).find("the model has already been sharded"),
            std::string::npos);
  EXPECT_NE(thrown_by<ConfigError>([] { policies().at("gpt3"); }).find("did you mean 'gpt2'?"), std::string::npos);
}

struct OddHeads : torch::nn::Module {};
struct Painted : OddHeads {};

template <class Model>
class NamedPolicy : public PolicyFor<Model> {
 public:
  std::string name() const override { return "NamedPolicy"; }
  ModelSplit split(const Model&) const override { return {}; }
  TensorDict forward(Model&, const StageContext&, TensorDict input) const override { return input; }
};

class RefusingPolicy final : public NamedPolicy<OddHeads> {
 public:
  void validate_model(const OddHeads&) const override {
    throw ConfigError({"RefusingPolicy", "3 heads over 2 groups", "a multiple", "choose other heads"});
  }
};
class PaintedPolicy final : public NamedPolicy<Painted> {
 public:
  std::string name() const override { return "PaintedPolicy"; }
};
class UntypedPolicy final : public Policy {
 public:
  std::string name() const override { return "UntypedPolicy"; }
  ModelSplit split(const torch::nn::Module&) const override { return {}; }
  TensorDict forward(torch::nn::Module&, const StageContext&, TensorDict input) const override { return input; }
};

TEST(PolicyFor, AValidatorsRefusalIsSaidAndAnUntypedPolicyIsForNoClass) {
  policies().add<UntypedPolicy>("a_first_untyped_one");
  EXPECT_EQ(policy_for(*build())->name(), "DecoderPolicy");
  const torch::nn::LinearImpl linear(2, 2);
  EXPECT_NE(
      thrown_by<ConfigError>([&] { policy_for(linear); }).find("there is no registered policy for this class of model"),
      std::string::npos);
  policies().add<RefusingPolicy>("refusing");
  const OddHeads odd;
  EXPECT_EQ(thrown_by<ConfigError>([&] { policy_for(odd); }),
            "RefusingPolicy: 3 heads over 2 groups; expected a multiple; choose other heads");
}

TEST(PolicyFor, TheNearestClassIsMeantAndTwoAreRefused) {
  policies().add<NamedPolicy<OddHeads>>("base");
  policies().add<PaintedPolicy>("painted");
  EXPECT_EQ(policy_for(Painted())->name(), "PaintedPolicy");
  policies().add<NamedPolicy<Painted>>("painted_too");
  EXPECT_NE(thrown_by<ConfigError>([] {
              policy_for(Painted());
            }).find("2 registered policies match this class of model: painted, painted_too"),
            std::string::npos);
}

TEST(Memory, WithFourStagesEachRankHasItsQuarter) {
  nlohmann::json config = small();
  config["n_layer"] = 8;
  config["tie_word_embeddings"] = false;
  std::int64_t full = bytes_held(shard_model(build(config), std::make_shared<DecoderPolicy>(), {}));
  std::int64_t layer = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const PipelineStageManager stages(rank, 4);
    const std::int64_t held =
        bytes_held(shard_model(build(config), std::make_shared<DecoderPolicy>(), {.stages = &stages}));
    if (rank == 1) layer = held;
    if (rank == 2) EXPECT_EQ(held, layer);
    full -= held;
  }
  EXPECT_EQ(full, 0);
}

// About 10 GB of parameters over 64 stages, of which this process is one.
TEST(Memory, TenGigabytesOverSixtyFourStagesStayUnderOneResident) {
  nlohmann::json config;
  config["n_embd"] = 1792;
  config["n_head"] = 28;
  config["n_layer"] = 64;
  config["vocab_size"] = 256;
  config["n_positions"] = 256;
  const PipelineStageManager stages(17, 64);
  const auto model = build(config);
  const StageModule module = shard_model(model, std::make_shared<DecoderPolicy>(), {.stages = &stages});
  std::int64_t full = 0;
  for (const auto& placement : module.all_placements) {
    std::int64_t elements = 4;
    for (const auto size : placement.global_shape) elements *= size;
    full += elements;
  }
  EXPECT_GT(full, 9.5e9);
  EXPECT_LT(bytes_held(module), 0.2e9);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "needs a build without a sanitizer, whose own memory is resident too";
#endif
  std::ifstream status("/proc/self/status");
  std::int64_t peak = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> peak;
  EXPECT_LT(peak * 1024, 1'000'000'000);
}

}  // namespace
}  // namespace gantry::testing
