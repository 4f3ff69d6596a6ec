// Injected faults that the replica auditor must find. Each message names the fault with its ranks.
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/policies/decoder.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

// GPT-2's policy with a fault.
class FaultyPolicy : public PolicyFor<models::DecoderImpl> {
 public:
  std::string name() const override { return "FaultyPolicy"; }
  ModelSplit split(const models::DecoderImpl& model) const override { return right_.split(model); }
  SharedParameters shared_parameters(const models::DecoderImpl& model) const override {
    return right_.shared_parameters(model);
  }
  TensorDict forward(models::DecoderImpl& model, const StageContext& stage, TensorDict input) const override {
    return right_.forward(model, stage, std::move(input));
  }

 protected:
  DecoderPolicy right_;
};

// Declares that the last norm works on full activations,
// although it sees a shard: its gradient is not reduced.
class DroppedSum final : public FaultyPolicy {
 public:
  ModelSplit split(const models::DecoderImpl& model) const override {
    ModelSplit split = right_.split(model);
    std::erase_if(split.shards, [](const ShardRule& rule) { return rule.pattern == "ln_f"; });
    split.shards.push_back({"ln_f", FullSequence{}});
    return split;
  }
};

// Multiplies a replicated activation by a mask that depends on the rank.
class RankDependentDropout final : public FaultyPolicy {
 public:
  TensorDict forward(models::DecoderImpl& model, const StageContext& stage, TensorDict input) const override {
    TensorDict out = right_.forward(model, stage, std::move(input));
    if (stage.is_last()) return out;
    const torch::Tensor hidden = out.at("hidden");
    const double shift = model.named_modules()["h.0.attn.qkv"]->as<nn::LinearImpl>()->group()->rank();
    const torch::Tensor mask =
        (torch::sin(torch::arange(hidden.numel()) * 1.7 + shift).view(hidden.sizes()) > -0.8).to(hidden.options());
    return {{"hidden", hidden * mask}};
  }
};

Config config_for(const Layout& layout, bool sequence_parallel) {
  Config config = layout_config(layout);
  config.model.policy = "gpt2";
  config.model.config_json =
      R"({"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 19, "n_positions": 6, "resid_pdrop": 0, "embd_pdrop": 0,
          "attn_pdrop": 0})";
  config.parallel.sequence_parallel = sequence_parallel;
  config.schedule.microbatches = 2;
  return config;
}

// Runs two steps, with an audit of each before its update. Returns the auditor's message of some rank, or "".
std::string audit(const std::string& policy, const Layout& layout, bool sequence_parallel,
                  const std::function<void(Boosted&, ProcessGroupMesh&)>& plant = {}) {
  Config config = config_for(layout, sequence_parallel);
  std::string said;
  std::mutex mutex;
  ::testing::internal::CaptureStderr();
  const int code = start_ranks()(config, [&](World& world) {
    auto model = build_model(config);
    auto optimizer = build_optimizer(config, *model);
    Config boosting = config;
    boosting.model.policy = policy;
    HybridParallelPlugin plugin(world, boosting);
    auto boosted = plugin.boost({.model = model, .optimizer = optimizer, .criterion = cross_entropy()});
    if (plant) plant(boosted, plugin.mesh());
    try {
      for (int step = 0; step < 2; ++step) {
        const torch::Tensor ids = torch::arange(24).view({4, 6}) % 19;
        plugin.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", (ids + 1) % 19}}), boosted, {});
        plugin.audit(boosted);
        boosted.optimizer->step();
        boosted.optimizer->zero_grad();
      }
    } catch (const NumericalError& error) {
      const std::lock_guard lock(mutex);
      said = error.what();
      throw;
    }
  });
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, said.empty() ? 0 : 8);
  return said;
}

TEST(ReplicaAudit, PassesWhatIsRight) {
  EXPECT_EQ(audit("gpt2", {.pipeline = 2, .data = 2, .tensor = 2}, false), "");
  EXPECT_EQ(audit("gpt2", {.pipeline = 2, .data = 1, .tensor = 2}, true), "");
}

TEST(ReplicaAudit, FindsADroppedGradientSum) {
  policies().add<DroppedSum>("dropped_sum");
  const std::string said = audit("dropped_sum", {.tensor = 2}, true);
  EXPECT_NE(said.find("replicas over tp: the gradient of ln_f."), std::string::npos) << said;
  EXPECT_NE(said.find("between rank 0 (pp 0, dp 0, tp 0) and rank 1 (pp 0, dp 0, tp 1)"), std::string::npos) << said;
}

TEST(ReplicaAudit, FindsRankDependentDropoutOnAReplicatedActivation) {
  policies().add<RankDependentDropout>("rank_dependent_dropout");
  const std::string said = audit("rank_dependent_dropout", {.pipeline = 2, .tensor = 2}, false);
  EXPECT_NE(said.find("replicas over tp: the gradient of"), std::string::npos) << said;
}

TEST(ReplicaAudit, FindsUntiedCopies) {
  const std::string said = audit("gpt2", {.pipeline = 2}, false, [](Boosted& boosted, ProcessGroupMesh& mesh) {
    if (mesh.coordinate("pp") != 1) return;
    const torch::NoGradGuard no_grad;
    boosted.model->module().named_parameters()["lm_head.weight"][3][1] += 0.5;
  });
  EXPECT_NE(said.find("replicas over the stages that share it: the parameter wte.weight differs between rank 0"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("rank 1 (pp 1, dp 0, tp 0)"), std::string::npos) << said;
}

TEST(ReplicaAudit, FindsDriftOverReplicas) {
  const std::string said = audit("gpt2", {.data = 3}, false, [](Boosted& boosted, ProcessGroupMesh& mesh) {
    if (mesh.coordinate("dp") != 1) return;
    const torch::NoGradGuard no_grad;
    boosted.model->module().named_parameters()["h.1.mlp.down.bias"][0] += 1e-7;
  });
  EXPECT_NE(said.find("replicas over dp: the parameter h.1.mlp.down.bias differs between rank 0"), std::string::npos)
      << said;
}

TEST(Acceptance, A5PeersFedDifferentBatchesAreNamedOnStepOne) {
  Config config = config_for({.tensor = 2}, false);
  ::testing::internal::CaptureStderr();
  const int code = start_ranks()(config, [&](World& world) {
    auto model = build_model(config);
    HybridParallelPlugin plugin(world, config);
    auto boosted = plugin.boost({.model = model, .optimizer = nullptr, .criterion = cross_entropy()});
    const torch::Tensor ids = (torch::arange(24).view({4, 6}) + world.rank()) % 19;
    plugin.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", ids}}), boosted, {});
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 4);
  EXPECT_NE(said.find("batch: 'input_ids' differs between rank 0 (pp 0, dp 0, tp 0) and rank 1"), std::string::npos)
      << said;
}

}  // namespace
}  // namespace gantry::testing
