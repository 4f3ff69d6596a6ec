// Ranks that share sequences: full outputs, messages and rejected cases.
#include <gtest/gtest.h>

#include "gantry/comm/observed_backend.h"
#include "gantry/core/config/context_choice.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/profiling/communication_meter.h"
#include "ranks_outcome.h"
#include "small_stack.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

constexpr int kContextTokens = 8, kContextSamples = 4, kContextLayers = 2, kContextMicrobatches = 2;

Config sharing(const std::string& method, int context, const char* family = "llama") {
  Config config = layout_config({.context = context});
  config.model.policy = family;
  config.model.config_json =
      R"({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16,
          "intermediate_size": 24, "vocab_size": 29, "max_position_embeddings": 8})";
  config.parallel.context_method = method;
  config.precision = "float64";
  config.schedule.microbatches = kContextMicrobatches;
  return config;
}

TensorDict shared_batch(std::int64_t tokens = kContextTokens) {
  const torch::Tensor all = (torch::arange(kContextSamples * (tokens + 1)).view({kContextSamples, -1}) * 7) % 29;
  return {{"input_ids", all.narrow(1, 0, tokens).contiguous()}, {"labels", all.narrow(1, 1, tokens).contiguous()}};
}

TEST(Context, OutputsAreFullAndInOrder) {
  const auto logits = [](const Config& config) {
    return on_layout<torch::Tensor>(config, [&](World& world) {
      Rig rig(world, config, cross_entropy(), /*optimize=*/false);
      return rig.booster
          .execute_pipeline(rig.batch(shared_batch()), rig.boosted, {.return_outputs = true, .forward_only = true})
          .outputs.at("logits");
    });
  };
  const torch::Tensor expected = logits(sharing("auto", 1));
  for (const auto& [method, ranks] :
       {std::pair("all_gather", 2), std::pair("ring", 2), std::pair("ulysses", 2), std::pair("ulysses_ring", 4)}) {
    const torch::Tensor found = logits(sharing(method, ranks));
    ASSERT_EQ(found.sizes(), expected.sizes()) << method;
    EXPECT_LE((found - expected).abs().max().item<double>(), 1e-12) << method;
  }
}

// Calls and bytes of this operation over cp on rank 0 in the second step.
CommunicationCount count_of_step(const std::string& method, int context, const std::string& operation, bool trains) {
  const Config config = sharing(method, context);
  return on_layout<CommunicationCount>(config, [&](World& given) {
    const auto meter = std::make_shared<CommunicationMeter>();
    ObservedBackend metered(given.backend(), meter);
    World world(metered, given.config(), given.mesh());
    Rig rig(world, config);
    const auto run = [&] {
      rig.booster.execute_pipeline(rig.batch(shared_batch()), rig.boosted, {.forward_only = !trains});
      if (trains) rig.boosted.optimizer->zero_grad();
    };
    run();
    meter->resume();
    run();
    meter->pause();
    CommunicationCount found;
    for (const auto& count : meter->counts())
      if (count.axis == "cp" && count.operation == operation) found = count;
    return found;
  });
}

std::int64_t bytes_of_step(const std::string& method, int context, const std::string& operation, bool trains) {
  return count_of_step(method, context, operation, trains).bytes;
}

TEST(Context, BytesThatTravelAreThoseOfTheFormula) {
  const auto formula = [](ContextMethod method, int context) {
    return context_elements({method, ""}, kContextTokens, context, {4, 2}, 4) * kContextSamples * kContextLayers * 8;
  };
  for (const int context : {2, 4}) {
    const std::int64_t ring = formula(ContextMethod::kRing, context);
    EXPECT_EQ(bytes_of_step("ring", context, "send", false), ring);
    // The backward sends keys and values again, and their gradients back to the owner.
    EXPECT_EQ(bytes_of_step("ring", context, "send", true), 2 * ring + ring / (context - 1) * context);
    EXPECT_EQ(bytes_of_step("all_gather", context, "all_gather", false) * (context - 1),
              formula(ContextMethod::kAllGather, context));
  }
  // The input of an exchange also contains the part that stays on the rank.
  EXPECT_EQ(bytes_of_step("ulysses", 2, "all_to_all", false) / 2, formula(ContextMethod::kUlysses, 2));
  const std::int64_t both = context_elements({ContextMethod::kUlyssesRing, "", 2}, kContextTokens, 4, {4, 2}, 4) *
                            kContextSamples * kContextLayers * 8;
  EXPECT_EQ(bytes_of_step("ulysses_ring", 4, "all_to_all", false) / 2 + bytes_of_step("ulysses_ring", 4, "send", false),
            both);
}

// A ring passes keys and values c - 1 times in the forward and again in the
// backward. Their gradients are passed c times, until they reach the owner. An
// exchange of heads takes three messages: queries, keys with values, outputs.
TEST(Context, MessagesThatTravelAreThoseOfTheFormula) {
  const std::int64_t attentions = kContextLayers * kContextMicrobatches;
  for (const int context : {2, 4}) {
    EXPECT_EQ(count_of_step("ring", context, "send", false).calls, (context - 1) * attentions);
    EXPECT_EQ(count_of_step("ring", context, "send", true).calls, (2 * (context - 1) + context) * attentions);
    EXPECT_EQ(count_of_step("all_gather", context, "all_gather", false).calls, attentions);
  }
  EXPECT_EQ(count_of_step("ulysses", 2, "all_to_all", false).calls, 3 * attentions);
  EXPECT_EQ(count_of_step("ulysses_ring", 4, "all_to_all", false).calls, 3 * attentions);
  EXPECT_EQ(count_of_step("ulysses_ring", 4, "send", false).calls, attentions);
}

class ReasonedPolicy final : public StackPolicy {
 public:
  ModelSplit split(const StackImpl& model) const override {
    ModelSplit split = StackPolicy::split(model);
    split.without_context = "its layers look at all tokens";
    return split;
  }
};

TEST(Context, ModulesForFullSequencesAreRejected) {
  if (!policies().contains("stack_reasoned")) policies().add<ReasonedPolicy>("stack_reasoned");
  const Config stack = stack_config({.context = 2}), llama = sharing("ring", 2);
  const auto boost = [&](World& world) {
    Booster booster(std::make_unique<HybridParallelPlugin>(world, stack));
    booster.boost(build_stack(stack));
  };
  expect_refused(outcome_of(stack, boost), 3, "StackPolicy only supports full sequences");
  Config reasoned = stack;
  reasoned.model.policy = "stack_reasoned";
  expect_refused(outcome_of(reasoned,
                            [&](World& world) {
                              Booster booster(std::make_unique<HybridParallelPlugin>(world, reasoned));
                              booster.boost(build_stack(stack));
                            }),
                 3, "the value is 2, but its layers look at all tokens");
  const Criterion own([](const TensorDict& outputs, const TensorDict&) { return Loss(outputs.at("logits").mean()); });
  expect_refused(outcome_of(llama, [&](World& world) { Rig rig(world, llama, own); }), 3,
                 "the criterion may need full sequences");
  expect_refused(outcome_of(llama,
                            [&](World& world) {
                              Rig rig(world, llama);
                              rig.booster.execute_pipeline(rig.batch(shared_batch(1)), rig.boosted, {});
                            }),
                 4, "1 tokens per sample for 2 ranks");
}

TEST(Context, RanksThatAreGivenOtherBatchesAreNamed) {
  const Config config = sharing("ring", 2);
  expect_refused(outcome_of(config,
                            [&](World& world) {
                              Rig rig(world, config);
                              TensorDict batch = shared_batch();
                              batch.set("labels", batch.at("labels") + world.rank());
                              rig.booster.execute_pipeline(rig.batch(batch), rig.boosted, {});
                            }),
                 4, "'labels' differs between rank 0");
}

}  // namespace
}  // namespace gantry::testing
