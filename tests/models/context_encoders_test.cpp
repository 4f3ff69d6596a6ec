// Ranks share the sequences of encoders, and of decoders that read one. Every method gives the numbers of one
// rank, with uneven shards of both streams, and those of transformers.
#include <gtest/gtest.h>

#include "family_case.h"
#include "gantry/models/bert.h"
#include "gantry/policies/bert.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

Parallelism sharing(const std::string& method, int context, Layout others = {}, int microbatches = 1) {
  Parallelism how{.layout = others, .microbatches = microbatches, .context_method = method};
  how.layout.context = context;
  return how;
}

// Layouts with each method over two and three ranks, alone and with each other axis. Each call returns every
// third layout, in turn; under GANTRY_LONG=1 it returns all.
std::vector<Parallelism> sharing_layouts() {
  std::vector<Parallelism> all{sharing("ulysses_ring", 4)};
  for (const char* method : {"all_gather", "ring", "ulysses"}) {
    Parallelism with_tensor = sharing(method, 3, {.tensor = 2}, 2),
                with_stages = sharing(method, 2, {.pipeline = 2}, 3),
                with_replicas = sharing(method, 2, {.pipeline = 2, .data = 2}, 2);
    with_tensor.sequence_parallel = true;
    with_tensor.recompute = "selective";
    with_stages.schedule = "zb_h1";
    with_replicas.recompute = "full";
    with_replicas.zero = 2;
    for (const auto& how : {sharing(method, 2), sharing(method, 3), with_tensor, with_stages, with_replicas})
      all.push_back(how);
  }
  return turn_of(next_turn("sharing"), 3, all);
}

TEST(ContextEncoders, T5) {
  for (const bool tied : {true, false})
    expect_layouts_equal({.family = "t5",
                          .layers = 2,
                          .heads = 6,
                          .tied = tied,
                          .dropout = 0.1,
                          .tokens = tied ? 11 : 6,
                          .batches = {4, 3},
                          .keys = tied ? "{}" : R"({"feed_forward_proj": "gated-gelu"})"},
                         sharing_layouts());
}

TEST(ContextEncoders, Whisper) {
  expect_layouts_equal({.family = "whisper",
                        .layers = 2,
                        .heads = 6,
                        .dropout = 0.1,
                        .tokens = 8,
                        .batches = {4, 3},
                        .keys = R"({"decoder_attention_heads": 6})"},
                       sharing_layouts());
}

// Nine patches and the class token.
TEST(ContextEncoders, Vit) {
  expect_layouts_equal({.family = "vit", .layers = 2, .heads = 6, .dropout = 0.1, .batches = {4, 3}},
                       sharing_layouts());
}

TEST(ContextEncoders, Bart) {
  expect_layouts_equal({.family = "bart", .layers = 2, .heads = 6, .dropout = 0.1, .tokens = 11, .batches = {4, 3}},
                       sharing_layouts());
}

TEST(ContextEncoders, Pegasus) {
  expect_layouts_equal({.family = "pegasus", .layers = 2, .heads = 6, .dropout = 0.1, .tokens = 11, .batches = {4, 3}},
                       sharing_layouts());
}

TEST(ContextEncoders, Electra) {
  expect_layouts_equal({.family = "electra",
                        .layers = 2,
                        .heads = 6,
                        .dropout = 0.1,
                        .batches = {4, 3},
                        .head = "ForMaskedLM",
                        .keys = R"({"embedding_size": 10})"},
                       sharing_layouts());
}

// Windows cross the borders of ranks in both directions. The mean over all tokens skips padding.
TEST(ContextEncoders, ModernBert) {
  for (const char* head : {"ForMaskedLM", "ForSequenceClassification"}) {
    ModelCase what{.family = "modernbert", .layers = 3, .heads = 6, .dropout = 0.1, .tokens = 13, .batches = {4, 3}};
    what.head = head;
    what.keys = R"({"classifier_pooling": "mean"})";
    if (what.head != "ForMaskedLM") what.ignored = 0;
    expect_layouts_equal(what, sharing_layouts());
  }
}

TEST(ContextEncoders, ModernBertOfDocuments) {
  expect_layouts_equal(
      {.family = "modernbert", .layers = 3, .heads = 6, .tokens = 13, .batches = {4, 3}, .documents = {6, 4, 3}},
      sharing_layouts());
}

// Heads that read the first token, and heads that read all tokens.
TEST(ContextEncoders, HeadsOfFullSequences) {
  for (const char* family : {"bert", "roberta", "distilbert", "modernbert"})
    for (const char* head : {"ForSequenceClassification", "ForQuestionAnswering"}) {
      ModelCase what{.family = family, .layers = 2, .heads = 6, .dropout = 0.1, .tokens = 11, .batches = {4, 3}};
      what.ignored = 0;
      what.head = head;
      expect_layouts_equal(what, sharing_layouts());
      if (::testing::Test::HasFailure()) return;
    }
}

// The last token before the padding may be on any rank.
TEST(ContextEncoders, LastTokensOfDecoders) {
  for (const char* family : {"llama", "gpt2"}) {
    ModelCase what{.family = family, .layers = 2, .heads = 6, .key_heads = 6, .dropout = 0.1, .tokens = 11};
    what.batches = {4, 3};
    what.ignored = 0;
    what.labels = 3;
    expect_layouts_equal(what, sharing_layouts());
    if (::testing::Test::HasFailure()) return;
  }
}

// A sample consists of several sequences. A job is rejected, as for every policy that states no heads.
TEST(ContextEncoders, ChoicesShareNoSequences) {
  models::BertConfig config{.vocab_size = 31, .hidden_size = 12, .num_hidden_layers = 1, .num_attention_heads = 2};
  config.intermediate_size = 24;
  EXPECT_TRUE(BertPolicy("bert").split(*models::Bert(config)).context.has_value());
  config.head = models::BertHead::kMultipleChoice;
  EXPECT_FALSE(BertPolicy("bert").split(*models::Bert(config)).context.has_value());
}

TEST(ContextEncoders, TransformersNumbers) {
  for (const std::string& folder : family_cases(GANTRY_SOURCE_DIR "/tests/golden/families")) {
    if (is_causal_case(folder) || shares_no_sequence(folder)) continue;
    for (const Layout& layout : layouts_to_run<Layout>({{.context = 3}, {.tensor = 2, .context = 2}}))
      expect_family(folder, run_family(folder, layout, layout.tensor > 1),
                    folder + " " + describe(Parallelism{.layout = layout}));
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gantry::testing
