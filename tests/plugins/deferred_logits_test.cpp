// Training steps whose logits are not computed in full have the numbers of one rank with full logits: float64.
#include <atomic>
#include <gtest/gtest.h>

#include <ATen/record_function.h>

#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

// Tiles of 20 logits at most.
Parallelism deferred(Parallelism how) {
  how.logit_limit = 160;
  return how;
}

Parallelism in_layout(const Layout& layout, const std::string& schedule = "1f1b", int microbatches = 2) {
  return {.layout = layout, .schedule = schedule, .microbatches = microbatches};
}

ModelCase with_deferred_logits(const std::string& family = "gpt2") {
  ModelCase what{
      .family = family, .layers = 2, .heads = 2, .key_heads = 2, .width = 12, .vocabulary = 53, .batches = {6, 5}};
  return what;
}

TEST(DeferredLogitsOfSteps, HaveTheNumbersOfFullOnes) {
  Parallelism sequences = in_layout({.data = 2, .tensor = 2}, "1f1b", 1), shards = in_layout({.data = 2}),
              scattered = in_layout({.data = 2}), recomputed = in_layout({.tensor = 2}),
              calls = in_layout({.pipeline = 2}, "zb_h1", 3);
  sequences.sequence_parallel = true;
  shards.zero = 3;
  scattered.zero = 2;
  recomputed.recompute = "full";
  calls.accumulation = 2;
  std::vector<Parallelism> layouts;
  for (const Parallelism& how : {in_layout({}), sequences, shards, scattered, recomputed, calls,
                                 in_layout({.tensor = 2, .context = 2}), in_layout({.pipeline = 2}, "dualpipe_v", 4)})
    layouts.push_back(deferred(how));
  layouts.back().chunks = 2;
  ModelCase what = with_deferred_logits();
  what.layers = 4;
  what.dropout = 0.1;
  expect_layouts_equal(what, layouts);
}

TEST(DeferredLogitsOfSteps, OfPackedSequencesAndEveryKindOfLoss) {
  ModelCase what = with_deferred_logits("llama");
  what.tied = false;
  what.packed = true;
  what.causal_labels = true;
  what.smoothing = 0.1;
  what.z_loss = 1e-3;
  expect_layouts_equal(what, {deferred(in_layout({.tensor = 2})), deferred(in_layout({.pipeline = 2, .context = 2}))});
}

// Soft caps, factors, a bias, a projection before the head, encoder-decoders, and masked language models.
TEST(DeferredLogitsOfSteps, OfFamilies) {
  for (const auto& [family, keys] :
       {std::pair("gemma2", R"({"head_dim": 6, "final_logit_softcapping": 3.0})"),
        std::pair("granite", R"({"logits_scaling": 2.5})"), std::pair("gptj", R"({"rotary_dim": 4})"),
        std::pair("t5", "{}"), std::pair("bert", "{}"), std::pair("modernbert", "{}")}) {
    ModelCase what = with_deferred_logits(family);
    what.keys = keys;
    what.batches = {4};
    expect_layouts_equal(what, {deferred(in_layout({.tensor = 2}))});
  }
}

TEST(DeferredLogitsOfSteps, OfAVocabularyOverThePipeline) {
  ModelCase what = with_deferred_logits("gemma2");
  what.keys = R"({"head_dim": 6, "final_logit_softcapping": 3.0})";
  what.smoothing = 0.1;
  what.z_loss = 1e-3;
  Parallelism first = deferred(in_layout({.pipeline = 2})), second = deferred(in_layout({.pipeline = 2, .tensor = 2}));
  first.vocabulary = second.vocabulary = "pipeline";
  first.vocabulary_algorithm = 1;
  expect_layouts_equal(what, {first, second});
}

TensorDict step_with_adapter(const Layout& layout, bool sequence_parallel, double dropout, std::int64_t limit) {
  Config config = tiny(layout);
  config.parallel.sequence_parallel = sequence_parallel;
  config.comm.threads_per_rank = 1;
  config.lora = {.r = 2, .alpha = 5, .dropout = dropout, .target_modules = {"lm_head", "attn.c_proj"}};
  config.model.config_json.insert(1, R"("tie_word_embeddings": false, )");
  return on_layout<TensorDict>(config, [&](World& world) {
    Criterion criterion = cross_entropy();
    criterion.set_logit_limit(limit);
    Rig rig(world, config, criterion);
    TensorDict all;
    for (int step = 0; step < 2; ++step) {  // B is zero in the first step
      const auto done = rig.booster.execute_pipeline(rig.batch(tokens(4, step)), rig.boosted, {.broadcast_loss = true});
      rig.boosted.optimizer->gradients().complete();
      all = rig.gradients();
      all.set("loss", torch::tensor(*done.loss, torch::kFloat64));
      rig.boosted.optimizer->step();
      rig.boosted.optimizer->zero_grad();
    }
    return all;
  });
}

TEST(DeferredLogitsOfSteps, OfAdaptersOfTheHead) {
  constexpr std::int64_t kFull = 1 << 20, kTiles = 160;
  for (const double dropout : {0.0, 0.3}) {
    const TensorDict expected = step_with_adapter({}, false, dropout, kFull);
    expect_close(expected, step_with_adapter({}, false, dropout, kTiles));
    expect_close(expected, step_with_adapter({.tensor = 2}, false, dropout, kTiles));
    expect_close(expected, step_with_adapter({.pipeline = 2, .tensor = 2}, true, dropout, kTiles));
  }
}

std::atomic<std::size_t> largest_output = 0;

void note_largest(const at::RecordFunction& function, at::ObserverContext*) {
  for (const c10::IValue& output : function.outputs()) {
    if (!output.isTensor() || !output.toTensor().defined()) continue;
    std::size_t known = largest_output;
    while (known < output.toTensor().nbytes() &&
           !largest_output.compare_exchange_weak(known, output.toTensor().nbytes()))
      ;
  }
}

// Bytes of the largest output of an operator on any rank.
std::size_t largest_in(const ModelCase& what, const Parallelism& how) {
  largest_output = 0;
  const auto nothing = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; };
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(nothing, &note_largest).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  run_case(what, how);
  at::removeCallback(handle);
  return largest_output;
}

// The gradients of all parameters are 57 KB.
TEST(DeferredLogitsOfSteps, NoRankHasALargeTensorOfLogits) {
  ModelCase what{.layers = 2, .heads = 2, .width = 4, .vocabulary = 1500, .batches = {8}};
  constexpr std::size_t kLogits = 8 * 7 * 1500 * 8;
  EXPECT_GE(largest_in(what, in_layout({}, "1f1b", 1)), kLogits);
  Parallelism shared = in_layout({.pipeline = 2}, "1f1b", 1);
  shared.vocabulary = "pipeline";
  EXPECT_GE(largest_in(what, shared), kLogits / 2);
  EXPECT_LE(largest_in(what, deferred(in_layout({}, "1f1b", 1))), kLogits / 8);
  EXPECT_LE(largest_in(what, deferred(shared)), kLogits / 8);
}

// A step that returns outputs computes full logits, and an evaluation without outputs does not.
TEST(DeferredLogitsOfSteps, OfEvaluationsAndReturnedOutputs) {
  Criterion criterion = cross_entropy();
  criterion.set_logit_limit(160);
  const Config config = tiny({.tensor = 2});
  const TensorDict seen = on_layout<TensorDict>(config, [&](World& world) {
    Rig rig(world, config, criterion);
    const Batch batch = rig.batch(tokens(4));
    const auto with_outputs = rig.booster.execute_pipeline(
        batch, rig.boosted, {.return_outputs = true, .broadcast_loss = true, .forward_only = true});
    const auto without =
        rig.booster.execute_pipeline(batch, rig.boosted, {.broadcast_loss = true, .forward_only = true});
    EXPECT_NEAR(*with_outputs.loss, *without.loss, 1e-12);
    return with_outputs.outputs;
  });
  EXPECT_EQ(seen.at("logits").sizes(), torch::IntArrayRef({4, 5, 29}));
}

}  // namespace
}  // namespace gantry::testing
