// Models that are trained on groups of texts: every layout trains as one rank in float64, with the embeddings of all
// replicas in the loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/models/sentence_embedding.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMeanOfTokens = R"({"sentence_pairs": true, "sentence_modules": [
  {"class": "Transformer", "path": "", "where": "modules.json", "config": {}},
  {"class": "Pooling", "path": "1_Pooling", "where": "1_Pooling/config.json", "config": {}}]})";

ModelCase pairs_case(const std::string& family) {
  ModelCase what{
      .family = family, .layers = 3, .heads = 3, .key_heads = 3, .dropout = 0.1, .tokens = 7, .batches = {6, 5}};
  what.ignored = 0;
  what.padded = true;
  what.head = "Model";
  what.keys = kMeanOfTokens;
  return what;
}

TEST(SentencePairs, TrainAsOneRankInEveryLayout) {
  const std::vector<Parallelism> layouts = {{.layout = {.tensor = 3}, .sequence_parallel = true, .recompute = "full"},
                                            {.layout = {.data = 2}},
                                            {.layout = {.data = 3}, .zero = 2},
                                            {.layout = {.data = 2, .tensor = 2}, .recompute = "selective", .zero = 1},
                                            {.layout = {.data = 2}, .zero = 3}};
  for (const char* family : {"bert", "modernbert", "qwen3", "opt"}) expect_layouts_equal(pairs_case(family), layouts);
}

// Three samples of three texts; the losses are those of the formula, one by one.
TEST(SentencePairs, CompareTheFirstTextWithAllOthers) {
  const torch::Tensor rows = models::unit_length(torch::sin(torch::arange(3 * 3 * 4, torch::kFloat64).view({3, 3, 4})));
  const torch::Tensor losses = models::ranking_losses(rows.narrow(0, 1, 2), rows, 1);
  ASSERT_EQ(losses.size(0), 2);
  for (std::int64_t sample = 1; sample < 3; ++sample) {
    double sum = 0;
    const auto score = [&](std::int64_t other, std::int64_t text) {
      return 20 * rows[sample][0].dot(rows[other][text]).item<double>();
    };
    for (std::int64_t other = 0; other < 3; ++other)
      for (std::int64_t text = 1; text < 3; ++text) sum += std::exp(score(other, text));
    EXPECT_NEAR(losses[sample - 1].item<double>(), std::log(sum) - score(sample, 1), 1e-12);
  }
}

TEST(SentencePairs, NeedASentenceEmbedding) {
  EXPECT_THAT(
      thrown_by<ConfigError>([] {
        models::families().at("bert").check({{"sentence_pairs", true}});
      }),
      HasSubstr("model.config.sentence_pairs: the value is true, but the model computes no sentence embedding"));
}

}  // namespace
}  // namespace gantry::testing
