// Ranks that share sequences give the numbers of one rank:
// each method, with the other axes, masks and models.
#include <gtest/gtest.h>

#include "grid.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

const std::vector<std::string> kMethods = {"all_gather", "ring", "ulysses"};

Parallelism shared(const std::string& method, int context, Layout others = {}, int microbatches = 1) {
  Parallelism how{.layout = others, .microbatches = microbatches};
  how.layout.context = context;
  how.context_method = method;
  return how;
}

Parallelism with(Parallelism how, bool sequence_parallel, const std::string& recompute, int zero,
                 const std::string& schedule = "1f1b") {
  how.sequence_parallel = sequence_parallel;
  how.recompute = recompute;
  how.zero = zero;
  how.schedule = schedule;
  return how;
}

ModelCase with_key_heads(int key_heads, int tokens) {
  return {.family = "llama",
          .layers = 2,
          .heads = 6,
          .key_heads = key_heads,
          .dropout = 0.1,
          .tokens = tokens,
          .batches = {4, 3}};
}

// Every method with several ranks, alone and combined with other axes.
std::vector<Parallelism> layouts_of_every_method() {
  std::vector<Parallelism> all;
  for (const auto& method : kMethods)
    for (const auto& how : {shared(method, 2), with(shared(method, 3, {.tensor = 2}, 2), true, "none", 0),
                            with(shared(method, 2, {.pipeline = 2, .data = 2}, 2), false, "full", 1),
                            with(shared(method, 2, {.data = 2}, 3), false, "selective", 2)})
      all.push_back(how);
  return all;
}

TEST(ContextGrid, AllGather) {
  expect_layouts_equal({.layers = 2, .dropout = 0.1, .tokens = 12, .batches = {4, 3}},
                       {shared("all_gather", 2), shared("all_gather", 3), shared("all_gather", 4)});
}

TEST(ContextGrid, Ring) {
  expect_layouts_equal({.layers = 2, .tokens = 16, .batches = {4, 3}},
                       {shared("ring", 2), shared("ring", 3), shared("ring", 4)});
  expect_layouts_equal({.layers = 2, .dropout = 0.1, .tokens = 13, .batches = {4, 3}},
                       {shared("ring", 2), shared("ring", 3), shared("ring", 4)});
}

// Chunks with more queries than one tile of attention by plain matrix multiplications.
TEST(ContextGrid, LongChunks) {
  ModelCase what{.layers = 1, .heads = 2, .width = 8, .vocabulary = 29, .dropout = 0.1, .tokens = 1100, .batches = {2}};
  expect_layouts_equal(what, {shared("ring", 2)});
  what.dropout = 0;
  what.packed = true;
  expect_layouts_equal(what, {shared("ring", 2)});
}

TEST(ContextGrid, Ulysses) {
  expect_layouts_equal({.layers = 2, .dropout = 0.1, .tokens = 13, .batches = {4, 3}},
                       {shared("ulysses", 2), shared("ulysses", 3), shared("ulysses", 4)});
}

// Ulysses within a ring: 2 x 2 ranks, and 6 ranks as 3 x 2 and 2 x 3.
const Parallelism kTwoByTwo = shared("ulysses_ring", 4), kOfSix = shared("ulysses_ring", 6);

TEST(ContextGrid, UlyssesWithinARing) {
  expect_layouts_equal({.layers = 2, .tokens = 16, .batches = {4, 3}}, {kTwoByTwo});
  for (const int key_heads : {1, 2, 6}) {
    const ModelCase what = with_key_heads(key_heads, 13);
    expect_layouts_equal(what, {kTwoByTwo, kOfSix, with(shared("ulysses_ring", 4, {.tensor = 2}, 2), true, "full", 1)});
    expect_layouts_equal(what, {with(shared("ulysses_ring", 4, {.pipeline = 2}, 3), false, "selective", 0, "zb_h1"),
                                with(shared("ulysses_ring", 4, {.data = 2}, 2), false, "none", 2)});
  }
}

TEST(ContextGrid, UlyssesWithinARingSeesMasksAndDocuments) {
  ModelCase what = with_key_heads(2, 11);
  what.packed = true;
  expect_layouts_equal(what, {kTwoByTwo, kOfSix});
  what.packed = false;
  what.padded = true;
  expect_layouts_equal(what, {kTwoByTwo, kOfSix});
}

TEST(ContextGrid, Gpt2OverAllAxes) {
  expect_layouts_equal({.layers = 3, .heads = 6, .dropout = 0.1, .tokens = 11, .batches = {6, 5}},
                       layouts_of_every_method());
}

TEST(ContextGrid, KeyHeadsThatRanksShare) {
  for (const int key_heads : {1, 2}) {
    const ModelCase what = with_key_heads(key_heads, 10);
    expect_layouts_equal(what, layouts_of_every_method());
  }
}

// Three steps with as many ranks as heads. The ranks' parts have unequal sizes.
TEST(ContextGrid, SixRanksAndThreeSteps) {
  ModelCase what = with_key_heads(6, 13);
  what.batches = {4, 3, 4};
  std::vector<Parallelism> layouts = {kOfSix};
  for (const auto& method : kMethods) layouts.push_back(shared(method, 6));
  expect_layouts_equal(what, layouts);
}

TEST(ContextGrid, LabelsThatAreNotShiftedYet) {
  for (const auto& method : kMethods)
    expect_layouts_equal({.layers = 2, .tokens = 9, .batches = {4, 3}, .causal_labels = true},
                         {shared(method, 2), shared(method, 3, {.pipeline = 2}, 2)});
}

TEST(ContextGrid, ARankThatCountsNoToken) {
  for (const auto& method : kMethods)
    expect_layouts_equal({.layers = 2, .tokens = 12, .batches = {4, 3}, .ignored = 0, .first_counted = 8},
                         {shared(method, 4), shared(method, 2, {.data = 2}, 2)});
}

TEST(ContextGrid, Documents) {
  for (const char* family : {"gpt2", "llama"})
    for (const auto& method : kMethods)
      expect_layouts_equal(
          {.family = family, .layers = 2, .dropout = 0.1, .tokens = 11, .batches = {4, 3}, .packed = true},
          {shared(method, 2), with(shared(method, 3, {.pipeline = 2}, 2), false, "full", 0, "zb_h1")});
}

// Documents of 1, 2, c - 1, c and c + 1 tokens in turn, and one document of all tokens. Parts, or the chunks
// of a zigzag, have c = 4 tokens.
TEST(ContextGrid, DocumentsAroundTheLengthOfAPart) {
  for (const std::vector<int>& lengths : {std::vector<int>{1, 2, 3, 4, 5, 1}, std::vector<int>{16}}) {
    ModelCase what = with_key_heads(2, 16);
    what.documents = lengths;
    std::vector<Parallelism> layouts = {kTwoByTwo, shared("ring", 4), shared("all_gather", 4)};
    for (const auto& method : kMethods) layouts.push_back(shared(method, 2, {.pipeline = 2}, 2));
    expect_layouts_equal(what, layouts);
  }
}

TEST(ContextGrid, Padding) {
  for (const char* family : {"llama", "opt"})
    for (const auto& method : kMethods)
      expect_layouts_equal({.family = family,
                            .layers = 2,
                            .heads = 6,
                            .key_heads = 2,
                            .dropout = 0.1,
                            .tokens = 9,
                            .batches = {4, 3},
                            .padded = true},
                           {shared(method, 2), shared(method, 3, {.pipeline = 2, .tensor = 2}, 2)});
}

TEST(ContextGrid, EncodersSeeTheFullSequence) {
  std::vector<Parallelism> layouts = {kTwoByTwo};
  for (const auto& method : kMethods) {
    layouts.push_back(shared(method, 2));
    layouts.push_back(with(shared(method, 3, {.tensor = 2}, 2), true, "full", 1));
    layouts.push_back(with(shared(method, 2, {.pipeline = 2, .data = 2}, 2), false, "none", 2));
  }
  std::size_t index = 0;
  for (const char* family : {"bert", "roberta"})
    for (const char* head : {"ForMaskedLM", "ForTokenClassification"}) {
      ModelCase what{.family = family, .layers = 2, .heads = 6, .dropout = 0.1, .tokens = 11, .batches = {4, 3}};
      what.head = head;
      expect_layouts_equal(what, turn_of(index, 4, layouts));
      what.packed = true;
      expect_layouts_equal(what, {shared(kMethods[index++ % kMethods.size()], 3, {.pipeline = 2}, 2)});
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(ContextGrid, AsManyTokensAsRanks) {
  for (const auto& method : kMethods)
    expect_layouts_equal({.layers = 2, .heads = 8, .tokens = 4, .batches = {4, 3}},
                         {shared(method, 4), with(shared(method, 4, {.tensor = 2}), true, "none", 0)});
  expect_layouts_equal({.layers = 2, .heads = 8, .tokens = 4, .batches = {4, 3}}, {kTwoByTwo});
}

// One case for each kind of attention mask and score.
TEST(ContextGrid, EveryKindOfScore) {
  const std::pair<const char*, const char*> families[] = {
      {"mistral", R"({"sliding_window": 3, "head_dim": 10})"},
      {"gemma2", R"({"sliding_window": 5, "head_dim": 8, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0,
                     "final_logit_softcapping": 3.0})"},
      {"bloom", R"({"n_head": 6})"},
      {"gpt_oss", R"({"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 6, "intermediate_size": 9,
                      "sliding_window": 3, "swiglu_limit": 0.05})"},
      {"phi3", R"({"original_max_position_embeddings": 5, "rope_scaling": {"type": "su",
                   "short_factor": [1, 1.1], "long_factor": [1, 2]}})"},
      {"olmo2", "{}"},
      {"deepseek_v3", R"({"num_key_value_heads": 6, "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 5,
           "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "num_experts_per_tok": 3,
           "moe_intermediate_size": 7, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
           "first_k_dense_replace": 1})"}};
  std::vector<Parallelism> layouts = {kTwoByTwo, kOfSix};
  for (const auto& method : kMethods) {
    layouts.push_back(shared(method, 2));
    layouts.push_back(shared(method, 3, {.tensor = 2}, 2));
  }
  std::size_t index = 0;
  for (const auto& [family, keys] : families) {
    ModelCase what{
        .family = family, .layers = 2, .heads = 6, .key_heads = 2, .vocabulary = 53, .tokens = 14, .batches = {4, 3}};
    what.keys = keys;
    expect_layouts_equal(what, turn_of(index++, 3, layouts));
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gantry::testing
