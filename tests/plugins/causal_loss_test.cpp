// A causal loss on labels that are not shifted equals the aligned loss on shifted ones, in every layout.
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

constexpr double kTolerance = 1e-10;
constexpr std::int64_t kSamples = 6, kTokens = 7, kVocabulary = 29;

struct CausalStep {
  double loss = 0;
  std::int64_t tokens = 0;
  TensorDict gradients;
};

struct How {
  Layout layout;
  int microbatches = 1;
  bool sequence_parallel = false;
  std::string family = "gpt2";
};

// Token ids; labels as other frameworks use them (the ids,
// some of them ignored); and labels that are shifted by hand.
struct Labels {
  torch::Tensor ids = torch::arange(kSamples * kTokens).view({kSamples, kTokens}) * 11 % kVocabulary;
  torch::Tensor given = ids.masked_fill(ids % 5 == 0, -100);
  torch::Tensor shifted =
      torch::cat({given.narrow(1, 1, kTokens - 1), torch::full({kSamples, 1}, -100, torch::kInt64)}, 1);
};

CausalStep run(const How& how, const Criterion& criterion, const torch::Tensor& labels) {
  Config config = layout_config(how.layout);
  config.model.policy = how.family;
  config.model.config_json =
      how.family == "gpt2"
          ? R"({"n_layer": 3, "n_head": 2, "n_embd": 12, "vocab_size": 29, "n_positions": 7, "resid_pdrop": 0.1})"
          : R"({"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 12, "intermediate_size": 20,
                "vocab_size": 29, "max_position_embeddings": 7})";
  config.precision = "float64";
  config.comm.threads_per_rank = 1;
  config.schedule.microbatches = how.microbatches;
  config.parallel.sequence_parallel = how.sequence_parallel;
  CausalStep outcome;
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), criterion);
    const Batch all = make_batch({{"input_ids", Labels().ids}, {"labels", labels}});
    const auto [begin, end] =
        split_evenly(kSamples, plugin->mesh().size("dp"))[static_cast<std::size_t>(plugin->mesh().coordinate("dp"))];
    Batch mine = slice(all, begin, end);
    mine.global_samples = kSamples;
    const auto result = booster.execute_pipeline(mine, boosted, {.broadcast_loss = true});
    auto gradients = gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                                    [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
    if (world.is_main()) outcome = {*result.loss, result.tokens, std::move(gradients)};
  });
  EXPECT_EQ(code, 0);
  return outcome;
}

void expect_equal(const CausalStep& expected, const CausalStep& actual, const std::string& label) {
  EXPECT_NEAR(actual.loss, expected.loss, kTolerance * expected.loss) << label;
  EXPECT_EQ(actual.tokens, expected.tokens) << label;
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size()) << label;
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_LE((actual.gradients.at(name) - gradient).abs().max().item<double>(), kTolerance) << label << " " << name;
}

TEST(CausalLoss, EqualsTheAlignedLossInEveryLayout) {
  const Labels labels;
  for (const std::string family : {"gpt2", "llama"}) {
    const CausalStep expected = run({.family = family}, cross_entropy(), labels.shifted);
    EXPECT_EQ(expected.tokens, (labels.shifted != -100).sum().item<std::int64_t>());
    EXPECT_LT(expected.tokens, kSamples * (kTokens - 1));
    for (const auto& how : {How{}, How{.microbatches = 3}, How{{.tensor = 2}}, How{{.tensor = 2}, 2, true},
                            How{{.pipeline = 3}, 6}, How{{.pipeline = 2, .data = 2, .tensor = 2}, 3, true}}) {
      How here = how;
      here.family = family;
      expect_equal(expected, run(here, causal_cross_entropy(), labels.given),
                   family + " tp " + std::to_string(how.layout.tensor) + " pp " + std::to_string(how.layout.pipeline) +
                       " dp " + std::to_string(how.layout.data));
    }
  }
}

TEST(CausalLoss, TakesLabelsByAnyNameAndNoLabelsOfTheLastToken) {
  const Labels labels;
  const torch::Tensor plain =
      torch::cat({labels.ids.narrow(1, 1, kTokens - 1), torch::full({kSamples, 1}, -100, torch::kInt64)}, 1);
  const CausalStep expected = run({}, cross_entropy(), plain);
  EXPECT_EQ(expected.tokens, kSamples * (kTokens - 1));
  // The ids themselves are the labels, whatever `labels` holds.
  expect_equal(expected, run({{.tensor = 2}}, causal_cross_entropy({}, "logits", "input_ids"), labels.given), "ids");
}

TEST(CausalLoss, OneTokenASampleCountsNothingAndOtherShapesAreRefused) {
  const SplitOutputs full;
  const torch::Tensor logits = torch::randn({2, 1, 5});
  const auto one =
      causal_cross_entropy()({{"logits", logits}}, {{"labels", torch::zeros({2, 1}, torch::kInt64)}}, full);
  EXPECT_EQ(one.count.item<std::int64_t>(), 0);
  EXPECT_EQ(one.sum.item<double>(), 0);
  EXPECT_THROW(causal_cross_entropy()({{"logits", logits}}, {{"labels", torch::zeros({2}, torch::kInt64)}}, full),
               InputError);
}

}  // namespace
}  // namespace gantry::testing
