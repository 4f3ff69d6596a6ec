// Tests compare_layouts(): correct policies give equal results in every layout. For wrong policies it reports
// the first wrong module and the wrong parameters.
#include <gmock/gmock.h>

#include "gantry/booster/compare_layouts.h"
#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/launch/launch.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A layer whose `up` projection consists of values and their gates.
struct GatedImpl : torch::nn::Module {
  explicit GatedImpl(std::int64_t width) {
    norm = register_module("norm", nn::LayerNorm(width));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(2 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto parts = up(norm(x)).chunk(2, -1);
    return x + down(parts[0] * torch::sigmoid(parts[1]));
  }
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Gated);

struct GatedStackImpl : torch::nn::Module {
  GatedStackImpl() {
    tokens = register_module("tokens", nn::Embedding(11, 6));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) blocks->push_back(Gated(6));
    norm = register_module("norm", nn::LayerNorm(6));
    head = register_module("head", nn::Linear(6, 11));
  }
  nn::Embedding tokens{nullptr};
  torch::nn::ModuleList blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(GatedStack);

class GatedPolicy : public PolicyFor<GatedStackImpl> {
 public:
  std::string name() const override { return "GatedPolicy"; }
  ModelSplit split(const GatedStackImpl&) const override {
    return {.shards = plan(),
            .stages = {.first = {"tokens"}, .repeated = "blocks", .last = {"norm", "head"}},
            .split_outputs = {{"logits", "head"}}};
  }
  TensorDict forward(GatedStackImpl& model, const StageContext& stage, TensorDict in) const override {
    torch::Tensor hidden = stage.is_first() ? model.tokens(in.at("input_ids")) : in.at("hidden");
    hidden = stage.run_layers(hidden, [&](int layer, const torch::Tensor& x) { return block(model, stage, layer, x); });
    if (!stage.is_last()) return {{"hidden", hidden}};
    return {{"logits", model.head(model.norm(hidden))}};
  }
  virtual torch::Tensor block(GatedStackImpl& model, const StageContext&, int layer, const torch::Tensor& x) const {
    return model.blocks->at<GatedImpl>(layer).forward(x);
  }

 protected:
  virtual ShardPlan plan() const { return plan_of({.segments = 2}, SequenceParallel{}); }
  static ShardPlan plan_of(const Column& up, const ShardStyle& last_norm) {
    return {{"tokens", Vocab{}}, {"blocks.*.up", up}, {"blocks.*.down", Row{}}, {"blocks.*", SequenceParallel{}},
            {"norm", last_norm}, {"head", Column{}}};
  }
};

// Wrongly declares that the last norm gets the full sequence, so its gradients are not reduced.
class StatesAFullNorm final : public GatedPolicy {
 protected:
  ShardPlan plan() const override { return plan_of({.segments = 2}, FullSequence{}); }
};

// Shards values and gates as if they were one segment.
class ForgetsSegments : public GatedPolicy {
 protected:
  ShardPlan plan() const override { return plan_of({}, SequenceParallel{}); }
};

// The same, and a later layer throws.
class ForgetsSegmentsAndThrows final : public ForgetsSegments {
 public:
  torch::Tensor block(GatedStackImpl& model, const StageContext& stage, int layer,
                      const torch::Tensor& x) const override {
    return ForgetsSegments::block(model, stage, layer, stage.num_stages() > 1 && layer == 2 ? x.narrow(2, 0, 5) : x);
  }
};

// Skips the last layer of each stage except the last one.
class SkipsAtTheBorder final : public GatedPolicy {
 public:
  torch::Tensor block(GatedStackImpl& model, const StageContext& stage, int layer,
                      const torch::Tensor& x) const override {
    const bool skips = !stage.is_last() && layer == stage.layers().back();
    return skips ? x * 1.5 : GatedPolicy::block(model, stage, layer, x);
  }
};

std::shared_ptr<torch::nn::Module> build_gated() {
  const DeferredInit deferred;
  return std::make_shared<GatedStackImpl>();
}

TensorDict token_batch(std::int64_t samples, std::int64_t tokens, std::int64_t vocabulary) {
  const torch::Tensor all = (torch::arange(samples * (tokens + 1)).view({samples, tokens + 1}) * 7 + 3) % vocabulary;
  return {{"input_ids", all.narrow(1, 0, tokens).contiguous()}, {"labels", all.narrow(1, 1, tokens).contiguous()}};
}

Config configured(const std::string& model, const std::string& rest = "") {
  static const bool once = [] {
    policies().add<GatedPolicy>("gated");
    policies().add<StatesAFullNorm>("gated_whole_norm");
    policies().add<ForgetsSegments>("gated_no_segments");
    policies().add<ForgetsSegmentsAndThrows>("gated_throws");
    policies().add<SkipsAtTheBorder>("gated_skips");
    return true;
  }();
  (void)once;
  return Config::parse("model: {" + model + "}\nschedule: {microbatches: 2}\n" + rest +
                       "comm: {timeout_seconds: 30, threads_per_rank: 1}\n");
}

LayoutComparison compare_gated(const std::string& policy, const std::string& layout) {
  return compare_layouts(configured("policy: " + policy), build_gated, token_batch(4, 6, 11), {layout}).at(0);
}

std::vector<std::string> names_of(const std::vector<LayoutDifference>& differences) {
  std::vector<std::string> names;
  for (const auto& difference : differences) names.push_back(difference.name);
  return names;
}

const std::vector<std::string> kLayouts = {
    "",
    "parallel.tensor=2",
    "parallel.pipeline=2",
    "parallel.data=2,parallel.zero=1",
    "parallel.data=2,parallel.zero=2",
    "parallel.tensor=2,parallel.pipeline=2,parallel.sequence_parallel=true",
    "parallel.tensor=3,parallel.sequence_parallel=true,schedule.recompute=full",
    "parallel.pipeline=2,schedule.name=zb_h1,schedule.layers=[1,3],schedule.microbatches=3"};

void expect_all_equal(const Config& config, const std::function<std::shared_ptr<torch::nn::Module>()>& build,
                      const TensorDict& batch, int outputs, int gradients) {
  const auto comparisons = compare_layouts(config, build, batch, kLayouts);
  ASSERT_THAT(comparisons, SizeIs(kLayouts.size()));
  for (const auto& comparison : comparisons) {
    EXPECT_TRUE(comparison.is_equal()) << describe(comparison);
    EXPECT_EQ(comparison.outputs, outputs) << comparison.layout;
    EXPECT_EQ(comparison.gradients, gradients) << comparison.layout;
  }
  EXPECT_EQ(exit_code_of(comparisons), 0);
}

void expect_model_equal(const std::string& model, int outputs, int gradients) {
  const Config config = resolve_model(configured(model));
  expect_all_equal(
      config, [&] { return build_model(config); }, token_batch(7, 6, 29), outputs, gradients);
}

TEST(CompareLayouts, FindsGpt2EqualWithItsDropout) {
  // Outputs per layer: two norms, four projections, the layer itself. Others: two embeddings, the last norm,
  // the head.
  expect_model_equal(
      "policy: gpt2, config: {n_layer: 4, n_head: 3, n_embd: 12, vocab_size: 29, n_positions: 6, resid_pdrop: 0.1, "
      "embd_pdrop: 0.1, attn_pdrop: 0.1}",
      4 * 7 + 4, 4 * 12 + 4);
}

TEST(CompareLayouts, FindsLlamaEqualWithKeyHeadsThatRanksShare) {
  expect_model_equal(
      "policy: llama, config: {num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, hidden_size: 16, "
      "intermediate_size: 21, vocab_size: 29, max_position_embeddings: 6}",
      4 * 10 + 3, 4 * 9 + 3);
}

TEST(CompareLayouts, FindsBertEqual) {
  const Config config = resolve_model(configured(
      "policy: bert, config: {num_hidden_layers: 4, num_attention_heads: 4, hidden_size: 16, intermediate_size: 21, "
      "vocab_size: 29, max_position_embeddings: 6}"));
  for (const auto& comparison : compare_layouts(
           config, [&] { return build_model(config); }, token_batch(7, 6, 29), kLayouts)) {
    EXPECT_TRUE(comparison.is_equal()) << describe(comparison);
    EXPECT_GT(comparison.outputs, 4 * 9);
    EXPECT_GT(comparison.gradients, 4 * 16);
  }
}

// The outputs of a rank belong to its tokens, which are contiguous or in zigzag order.
TEST(CompareLayouts, FindsRanksThatShareSequencesEqual) {
  const Config config = resolve_model(configured(
      "policy: gpt2, config: {n_layer: 2, n_head: 4, n_embd: 12, vocab_size: 29, n_positions: 9, resid_pdrop: 0.1, "
      "embd_pdrop: 0.1, attn_pdrop: 0.1}"));
  for (const auto& comparison : compare_layouts(
           config, [&] { return build_model(config); }, token_batch(7, 9, 29),
           {"parallel.context=2,parallel.context_method=ulysses", "parallel.context=3,parallel.context_method=ring",
            "parallel.context=2,parallel.context_method=ring,parallel.tensor=2,parallel.sequence_parallel=true",
            "parallel.context=2,parallel.pipeline=2,parallel.data=2,schedule.microbatches=2"})) {
    EXPECT_TRUE(comparison.is_equal()) << describe(comparison);
    EXPECT_EQ(comparison.outputs, 2 * 7 + 4) << comparison.layout;
    EXPECT_EQ(comparison.gradients, 2 * 12 + 4) << comparison.layout;
  }
}

// The sequences of both the encoder and the decoder are sharded, with unequal and with equal lengths.
TEST(CompareLayouts, FindsRanksThatShareAnEncodersSequencesEqual) {
  const Config config = resolve_model(configured(
      "policy: t5, config: {num_layers: 2, num_decoder_layers: 2, num_heads: 4, d_model: 12, d_kv: 3, d_ff: 20, "
      "vocab_size: 29, dropout_rate: 0.1}"));
  for (const std::int64_t read : {5, 9}) {
    TensorDict batch = token_batch(7, 9, 29);
    batch.set("input_ids", batch.at("input_ids").narrow(1, 0, read).contiguous());
    for (const auto& comparison : compare_layouts(
             config, [&] { return build_model(config); }, batch,
             {"parallel.context=2,parallel.context_method=ulysses", "parallel.context=3,parallel.context_method=ring",
              "parallel.context=2,parallel.pipeline=2,parallel.context_method=ring,schedule.microbatches=2"})) {
      EXPECT_TRUE(comparison.is_equal()) << describe(comparison);
      EXPECT_GT(comparison.outputs, 2 * 7 + 2 * 11) << comparison.layout;
    }
  }
}

TEST(CompareLayouts, FindsAModelThatWasBuiltWithValuesEqual) {
  expect_all_equal(
      configured("policy: gated"), [] { return std::make_shared<GatedStackImpl>(); }, token_batch(7, 6, 11), 4 * 4 + 3,
      4 * 6 + 5);
}

TEST(CompareLayouts, NamesTheParametersWhoseGradientsAreNotSummed) {
  const auto comparison = compare_gated("gated_whole_norm", "parallel.tensor=2,parallel.sequence_parallel=true");
  EXPECT_EQ(comparison.error, "");
  EXPECT_TRUE(comparison.is_loss_equal);
  EXPECT_FALSE(comparison.first_output);
  EXPECT_THAT(names_of(comparison.wrong_gradients), ElementsAre("norm.weight", "norm.bias"));
  for (const auto& gradient : comparison.wrong_gradients) {
    EXPECT_GT(gradient.relative, 0.01);
    EXPECT_GT(gradient.reference, 0);
  }
  EXPECT_EQ(exit_code_of({comparison}), 8);
  EXPECT_THAT(describe(comparison), HasSubstr("sequence_parallel=true: differs\n  gradient: norm.weight by "));
  EXPECT_TRUE(compare_gated("gated_whole_norm", "parallel.tensor=2").is_equal());
}

TEST(CompareLayouts, NamesTheFirstModuleBehindAWrongSplit) {
  const auto comparison = compare_gated("gated_no_segments", "parallel.tensor=2,parallel.pipeline=2");
  EXPECT_EQ(comparison.error, "");
  EXPECT_FALSE(comparison.is_loss_equal);
  ASSERT_TRUE(comparison.first_output);
  EXPECT_EQ(comparison.first_output->name, "blocks.0.down");  // `up` itself is right
  EXPECT_TRUE(comparison.first_output->has_run);
  EXPECT_GT(comparison.first_output->relative, 1e-3);
  EXPECT_THAT(names_of(comparison.wrong_gradients), SizeIs(comparison.gradients));
}

TEST(CompareLayouts, NamesALayerThatDoesNotRun) {
  const auto comparison = compare_gated("gated_skips", "parallel.pipeline=2");
  ASSERT_TRUE(comparison.first_output);
  EXPECT_EQ(comparison.first_output->name, "blocks.1.norm");
  EXPECT_FALSE(comparison.first_output->has_run);
  EXPECT_THAT(names_of(comparison.wrong_gradients), ::testing::Contains("blocks.1.up.weight"));
  EXPECT_THAT(describe(comparison), HasSubstr("first module: blocks.1.norm did not run\n"));
}

TEST(CompareLayouts, ALayoutThatFailsDoesNotKeepTheOthersBack) {
  const auto comparisons = compare_layouts(configured("policy: gated"), build_gated, token_batch(4, 6, 11),
                                           {"parallel.pipeline=5", "parallel.tensr=2", "parallel.tensor=2"});
  ASSERT_THAT(comparisons, SizeIs(3));
  EXPECT_THAT(comparisons[0].error, HasSubstr("4 layers over 5 stages"));
  EXPECT_THAT(comparisons[1].error, HasSubstr("parallel.tensr"));
  EXPECT_EQ(comparisons[1].error_code, 3);
  EXPECT_TRUE(comparisons[2].is_equal());
  EXPECT_EQ(exit_code_of(comparisons), 3);
  EXPECT_THAT(describe(comparisons[0]), HasSubstr("parallel.pipeline=5: failed: "));
}

TEST(CompareLayouts, AStepThatFailsKeepsWhatWasComparedUntilThen) {
  const auto comparison = compare_gated("gated_throws", "parallel.tensor=2,parallel.pipeline=2");
  EXPECT_THAT(comparison.error, HasSubstr("forward of stage 1 (blocks.2), microbatch 0: it threw"));
  ASSERT_TRUE(comparison.first_output);
  EXPECT_EQ(comparison.first_output->name, "blocks.0.down");
  EXPECT_THAT(describe(comparison), HasSubstr("\n  first module: blocks.0.down by "));
}

TEST(CompareLayouts, PrintsNothingOfItsOwn) {
  ::testing::internal::CaptureStderr();
  compare_layouts(configured("policy: gated"), build_gated, token_batch(4, 6, 11), {"parallel.pipeline=5"});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(CompareLayouts, RefusesWhatIsNoLayout) {
  const Config config = configured("policy: gated");
  for (const char* layout : {"train.seed=2", "parallel.tensor", "parallel.tensor=2,precision=float32"})
    EXPECT_THROW(compare_layouts(config, build_gated, token_batch(4, 6, 11), {layout}), UsageError) << layout;
  EXPECT_THROW(compare_layouts(config, build_gated, token_batch(4, 6, 11), {""}, {.criterion = Criterion()}),
               UsageError);
  EXPECT_THROW(compare_layouts(config, [] { return nullptr; }, token_batch(4, 6, 11), {""}), Error);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch(config, [&](World&) { compare_layouts(config, build_gated, token_batch(4, 6, 11), {""}); }), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("within a rank"));
}

TEST(CompareLayouts, TheConfigurationsOwnLayoutIsTheEmptyOne) {
  const auto comparison = compare_layouts(configured("policy: gated_no_segments", "parallel: {tensor: 2}\n"),
                                          build_gated, token_batch(4, 6, 11), {""})
                              .at(0);
  EXPECT_EQ(comparison.layout, "as configured");
  EXPECT_FALSE(comparison.is_equal());
  EXPECT_NE(comparison.loss, comparison.reference_loss);
}

}  // namespace
}  // namespace gantry::testing
