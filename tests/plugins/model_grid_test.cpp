// The grid over models and sequence parallelism: Llama with KV heads that ranks share, BERT with each of its
// heads, odd lengths, heads and widths that tp does not divide.
#include <gtest/gtest.h>

#include "description_cases.h"
#include "grid.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

TEST(SequenceParallelGrid, Gpt2) {
  expect_layouts_equal(
      {.dropout = 0.1},
      layout_grid({.tensor = {2, 3, 4}, .pipeline = {1, 2, 3}, .data = {1, 2}, .sequence_parallel = {true}}));
}

TEST(SequenceParallelGrid, ARankWithoutTokens) {
  for (const char* family : {"gpt2", "llama", "bert"})
    expect_layouts_equal({.family = family, .dropout = 0.1, .tokens = 2},
                         {{.layout = {.pipeline = 2, .tensor = 4}, .microbatches = 2, .sequence_parallel = true}});
}

TEST(LlamaGrid, KeyHeadsOverTensorRanks) {
  for (const int key_heads : {1, 2, 3, 6}) {
    const ModelCase what{.family = "llama", .layers = 3, .heads = 6, .key_heads = key_heads, .dropout = 0.1};
    expect_layouts_equal(what,
                         layout_grid({.tensor = {2, 3, 4}, .pipeline = {1, 2}, .sequence_parallel = {false, true}}));
  }
}

TEST(LlamaGrid, TiedAndUntiedOverAllAxes) {
  for (const bool tied : {false, true})
    expect_layouts_equal(
        {.family = "llama", .heads = 4, .key_heads = 2, .tied = tied, .dropout = 0.1, .smoothing = 0.1},
        layout_grid({.tensor = {1, 2, 3},
                     .pipeline = {1, 3, 4},
                     .data = {1, 2},
                     .microbatches = {3},
                     .sequence_parallel = {false, true}}));
}

TEST(FamilyGrid, EveryFlagOfTheDescription) {
  std::size_t index = 0;
  for (const auto& described : layouts_to_run(description_cases())) {
    SCOPED_TRACE(described.name);
    ModelCase what = described.what;
    what.tied = index % 2 == 0;
    what.padded = index % 3 == 0;
    expect_layouts_equal(what, turn_of(index++ / 2, 2, mixed_layouts()));
    if (::testing::Test::HasFailure()) return;
  }
}

// transformers' balancing loss, which is joint over a step.
TEST(FamilyGrid, TheRoutersLossOverTensorRanks) {
  for (const bool padded : {false, true})
    expect_layouts_equal({.family = "mixtral",
                          .layers = 3,
                          .key_heads = 2,
                          .vocabulary = 53,
                          .padded = padded,
                          .keys = R"({"num_local_experts": 5, "intermediate_size": 11, "output_router_logits": true,
                                      "router_aux_loss_coef": 0.7})"},
                         {{.layout = {.tensor = 2}},
                          {.layout = {.tensor = 2}, .recompute = "full"},
                          {.layout = {.tensor = 3}, .sequence_parallel = true},
                          {.layout = {.tensor = 2}, .sequence_parallel = true, .recompute = "parts"}});
}

TEST(BertGrid, MaskedLanguageModel) {
  expect_layouts_equal(
      {.family = "bert", .heads = 4, .dropout = 0.1, .smoothing = 0.1},
      layout_grid({.tensor = {1, 2, 3, 4}, .pipeline = {1, 2, 4}, .data = {1, 2}, .sequence_parallel = {false, true}}));
}

TEST(BertGrid, OtherHeads) {
  for (const char* head : {"ForSequenceClassification", "ForQuestionAnswering"})
    expect_layouts_equal({.family = "bert", .layers = 3, .heads = 3, .dropout = 0.1, .ignored = 0, .head = head},
                         layout_grid({.tensor = {1, 2, 3},
                                      .pipeline = {1, 3},
                                      .data = {1, 2},
                                      .schedules = {"1f1b", "gpipe"},
                                      .sequence_parallel = {false, true}}));
}

// Found by the padding token, and by the mask.
TEST(DecoderGrid, HeadsForLabels) {
  for (const char* keys : {R"({"pad_token_id": 5})", "{}"})
    for (const char* family : {"gpt2", "llama"})
      expect_layouts_equal({.family = family,
                            .layers = 3,
                            .heads = 4,
                            .dropout = 0.1,
                            .ignored = 0,
                            .labels = 3,
                            .padded = true,
                            .keys = keys},
                           layout_grid({.tensor = {1, 2, 3},
                                        .pipeline = {1, 3},
                                        .data = {1, 2},
                                        .schedules = {"1f1b", "zb_h1"},
                                        .microbatches = {3},
                                        .sequence_parallel = {false, true}}));
}

TEST(DocumentsGrid, PackedSamplesOfEveryModel) {
  for (const char* family : {"gpt2", "llama", "bert"})
    for (const char* recompute : {"none", "selective", "full"})
      expect_layouts_equal({.family = family, .layers = 3, .dropout = 0.1, .packed = true},
                           {{{}, "1f1b", 2, false, 1, recompute},
                            {{.pipeline = 3}, "zb_h1", 3, false, 1, recompute},
                            {{.pipeline = 2, .data = 1, .tensor = 2}, "1f1b", 2, true, 1, recompute},
                            {{.pipeline = 1, .data = 2, .tensor = 3}, "1f1b", 1, false, 1, recompute}});
}

}  // namespace
}  // namespace gantry::testing
