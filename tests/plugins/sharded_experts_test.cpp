// Experts over ranks under ZeRO 3: expert rows are sharded over the ranks that hold the same experts, and all
// other parameters over the ranks with other samples. Results are bitwise identical to ZeRO 0 and equal one
// rank within tolerances.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "expert_families.h"
#include "gantry/core/config/schedule_names.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "program.h"

namespace gantry::testing {
namespace {

ModelCase sharded_mixtral(int experts, int used = 2) {
  ModelCase what{.family = "mixtral", .layers = 3, .heads = 4, .key_heads = 2, .vocabulary = 53, .batches = {5, 4, 5}};
  what.keys =
      fmt::format(R"({{"num_local_experts": {}, "num_experts_per_tok": {}, "intermediate_size": 11}})", experts, used);
  what.experts = {.balance = "sequence", .aux_loss = 0.3, .z_loss = 0.05};
  return what;
}

Parallelism sharded(Layout layout, int microbatches = 1, const char* gather = "auto", const char* schedule = "1f1b") {
  Parallelism how{.layout = layout, .schedule = schedule, .microbatches = microbatches};
  how.sequence_parallel = layout.tensor > 1;
  how.zero = 3;
  how.gather = gather;
  return how;
}

void expect_bits_without_shards(const ModelCase& what, const Parallelism& how) {
  Parallelism plain = how;
  plain.zero = 0;
  expect_identical(run_case(what, plain), run_case(what, how), what.family + " " + describe(how));
}

// Six or five experts over two ranks. Each expert is on one rank, or on several.
TEST(ShardedExperts, HaveTheBitsOfZero0) {
  const std::vector<Layout> layouts = {{.data = 2, .expert = 2},
                                       {.data = 4, .expert = 2},
                                       {.pipeline = 2, .data = 2, .expert = 2},
                                       {.data = 2, .tensor = 2, .expert = 2}};
  std::size_t index = 0;
  for (const int experts : {6, 5}) {
    ModelCase what = sharded_mixtral(experts);
    what.clip = 1e9;  // the norm is reduced in another order
    what.precision = "float32";
    for (const Layout& layout : layouts_to_run(layouts))
      for (const char* gather : turn_of<const char*>(index++, 3, {"step", "window", "microbatch"}))
        expect_bits_without_shards(what, sharded(layout, 2, gather));
  }
}

TEST(ShardedExperts, HaveTheBitsOfZero0InLowPrecisionAndWithReplicasOfShards) {
  ModelCase what = sharded_mixtral(6);
  what.clip = 1e9;
  for (const char* precision : {"float64", "bfloat16"}) {
    what.precision = precision;
    for (const int shard : {1, 2}) {
      Parallelism how = sharded({.data = 4, .tensor = 2, .expert = 2}, 2);
      how.shard = shard;
      expect_bits_without_shards(what, how);
    }
    expect_bits_without_shards(what, sharded({.pipeline = 2, .data = 4, .expert = 2}, 2));
  }
}

TEST(ShardedExperts, EqualOneRank) {
  std::vector<Parallelism> layouts = {
      sharded({.data = 2, .expert = 1}, 2), sharded({.data = 2, .expert = 2}, 5, "step"),
      sharded({.data = 4, .expert = 2}, 1), sharded({.data = 3, .expert = 3}, 2),
      // dp is 1, so only experts have ranks to be sharded over.
      sharded({.tensor = 4, .expert = 2}, 2), sharded({.data = 2, .tensor = 2, .expert = 4}, 1, "window"),
      sharded({.data = 2, .context = 2, .expert = 2}, 2),
      sharded({.data = 2, .tensor = 2, .context = 2, .expert = 2}, 1),
      sharded({.pipeline = 2, .data = 2, .expert = 2}, 5, "microbatch", "zb_h1"),
      sharded({.pipeline = 2, .data = 2, .tensor = 2, .expert = 2}, 2, "window")};
  layouts.push_back(sharded({.data = 2, .expert = 2}, 2));
  layouts.back().dispatch = "all_gather";
  for (const char* recompute : {"full", "selective", "parts"}) {
    layouts.push_back(sharded({.pipeline = 2, .data = 2, .expert = 2}, 2, "microbatch"));
    layouts.back().recompute = recompute;
  }
  ModelCase what = sharded_mixtral(5);
  expect_layouts_equal(what, layouts);
  what.experts = {};  // router losses require a single call per step
  Parallelism accumulated = sharded({.data = 4, .expert = 2}, 1);
  accumulated.accumulation = 2;
  expect_layouts_equal(what, {accumulated});
}

TEST(ShardedExperts, EqualOneRankUnderEverySchedule) {
  const char* const gathers[] = {"step", "window", "microbatch"};
  std::vector<Parallelism> layouts;
  for (const auto& known : schedule_names()) {
    layouts.push_back(sharded({.pipeline = 2, .data = layouts.size() % 2 == 0 ? 2 : 4, .expert = 2}, 3,
                              gathers[layouts.size() % 3], known.name.c_str()));
    layouts.back().chunks =
        known.name == "interleaved_1f1b" || known.name == "breadth_first" ? 2 : default_chunks(known.name);
  }
  ModelCase what = sharded_mixtral(6);
  what.layers = 4;
  expect_layouts_equal(what, layouts);
}

// Shared experts, layers without experts, expert bias, interleaved columns, biases.
TEST(ShardedExperts, OfOtherFamilies) {
  const std::pair<const char*, const char*> families[] = {
      {"qwen2_moe", kQwen2MoeKeys}, {"gpt_oss", kGptOssKeys}, {"deepseek_v3", kDeepseekKeys}};
  for (const auto& [family, keys] : families) {
    SCOPED_TRACE(family);
    ModelCase what = sharded_mixtral(6);
    what.family = family;
    what.keys = keys;
    what.experts = {};
    if (what.family == "deepseek_v3") what.experts = {.balance = "sequence", .aux_loss = 0.01, .bias_update = 0.02};
    expect_layouts_equal(what, {sharded({.data = 4, .expert = 2}, 2), sharded({.data = 2, .tensor = 2, .expert = 2}, 1),
                                sharded({.pipeline = 2, .data = 4, .expert = 2}, 2, "microbatch")});
    if (HasFailure()) return;
  }
}

// The vocabulary has two words, so all tokens choose one expert of the second layer. Ranks without rows take
// part in every gather and reduction.
TEST(ShardedExperts, AllTokensMayGoToOneExpert) {
  ModelCase what = sharded_mixtral(4, 1);
  what.layers = 2;
  what.heads = what.key_heads = 2;
  what.width = 8;
  what.vocabulary = 2;
  what.batches = {6, 5};
  const CaseResult full = run_case(what, {}, "local");
  for (const auto& step : full.loads) {
    const auto& tokens = step.layers.back().tokens;
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 0), 3);
  }
  for (const auto& how : {sharded({.data = 2, .expert = 2}, 2), sharded({.data = 4, .expert = 4}, 1),
                          sharded({.data = 4, .expert = 2}, 2, "step")})
    expect_equal(full, run_case(what, how), 1e-10, describe(how));
}

}  // namespace
}  // namespace gantry::testing
