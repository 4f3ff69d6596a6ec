// Automatic recomputation: the fastest choice within a memory limit, compared with all choices.
#include "gantry/planner/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config.h"
#include "gantry/core/config/byte_size.h"
#include "gantry/core/error.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/planner/config.h"

namespace gantry::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<Recompute> kEveryHow = {Recompute::kSelective, Recompute::kParts, Recompute::kFull};

Workload four_layers() {
  return {.model = models::decoder_spec("gpt2", {{"n_embd", 64},
                                                 {"n_layer", 4},
                                                 {"n_head", 4},
                                                 {"n_positions", 128},
                                                 {"vocab_size", 500},
                                                 {"attn_pdrop", 0.0},
                                                 {"embd_pdrop", 0.0}}),
          .sequence = 128,
          .batch = 8,
          .precision = "float32",
          .program = gantry_program("float32", {})};
}

struct RecomputeCase {
  const char* schedule;
  int pipeline, chunks;
  std::vector<int> layers;
};

const RecomputeCase kRecomputeCases[] = {
    {"1f1b", 2, 1, {2, 2}},  {"gpipe", 2, 1, {1, 3}},      {"interleaved_1f1b", 2, 2, {1, 1, 1, 1}},
    {"zb_h1", 2, 1, {2, 2}}, {"zb_v", 2, 2, {1, 1, 1, 1}}, {"v_half", 2, 2, {1, 1, 1, 1}}};

// The shortest time of all numbers of layers for each stage that fit; 0 if none fits.
double soonest_of_all(const RecomputeCosts& costs, double limit) {
  double soonest = 0;
  for (const Recompute how : kEveryHow) {
    std::vector<int> counts(costs.stages(), 0);
    for (bool more = true; more;) {
      bool fits = true;
      for (int rank = 0; rank < costs.ranks(); ++rank) fits = fits && costs.memory(rank, how, counts).sum() <= limit;
      const double made = fits ? costs.makespan(how, counts) : 0;
      if (fits && (soonest == 0 || made < soonest)) soonest = made;
      more = false;
      for (int stage = 0; stage < costs.stages() && !more; ++stage) {
        more = ++counts[stage] <= costs.layers_of(stage);
        if (!more) counts[stage] = 0;
      }
    }
  }
  return soonest;
}

TEST(RecomputeChoice, IsTheSoonestOfAllThatFit) {
  const Workload workload = four_layers();
  int chosen = 0, refused = 0;
  for (const RecomputeCase& one : kRecomputeCases) {
    const Layout layout{
        .pipeline = one.pipeline, .schedule = one.schedule, .chunks = one.chunks, .microbatch = 1, .microbatches = 8};
    const auto schedule = schedule::generate(one.schedule, one.pipeline, 8, one.chunks);
    const RecomputeCosts costs(workload, layout, schedule, one.layers);
    const std::vector<int> none(one.layers.size(), 0);
    double most = 0;
    for (int rank = 0; rank < one.pipeline; ++rank)
      most = std::max(most, costs.memory(rank, Recompute::kNone, none).sum());
    for (const double share : {1.0, 0.95, 0.85, 0.75, 0.6, 0.4}) {
      const auto limit = static_cast<std::int64_t>(share * most + 1);
      const double soonest = soonest_of_all(costs, static_cast<double>(limit));
      const std::string label = one.schedule + std::string(" ") + std::to_string(share);
      if (soonest == 0) {
        EXPECT_THROW(choose_recompute(workload, layout, schedule, one.layers, limit, kEveryHow), ConfigError) << label;
        ++refused;
        continue;
      }
      const RecomputeChoice choice = choose_recompute(workload, layout, schedule, one.layers, limit, kEveryHow);
      const std::vector<int> counts = choice.layers.empty() ? none : choice.layers;
      EXPECT_DOUBLE_EQ(costs.makespan(choice.how, counts), soonest) << label;
      EXPECT_DOUBLE_EQ(choice.longer, soonest / costs.makespan(Recompute::kNone, none) - 1) << label;
      for (const Memory& memory : choice.memory) EXPECT_LE(memory.sum(), static_cast<double>(limit)) << label;
      chosen += choice.how == Recompute::kNone ? 0 : 1;
    }
  }
  EXPECT_GT(chosen, 8);
  EXPECT_GT(refused, 3);
}

// The peak of a rank equals that of the simulator.
TEST(RecomputeChoice, CountsTheActivationsThatTheSimulatorHolds) {
  const Workload workload = four_layers();
  const auto schedule = schedule::generate("1f1b", 2, 4);
  const Layout layout{.pipeline = 2, .microbatch = 2, .microbatches = 4};
  const RecomputeCosts costs(workload, layout, schedule, {2, 2});
  const double layer = kept_bytes(workload, workload.model.layers.front(), layout);
  const double first = costs.memory(0, Recompute::kNone, {0, 0}).activations;
  EXPECT_DOUBLE_EQ(first, 2 * 2 * layer);  // two microbatches of two layers: the embedding keeps nothing
  Layout full = layout;
  full.recompute = Recompute::kFull;
  const double again = kept_bytes(workload, workload.model.layers.front(), full);
  EXPECT_DOUBLE_EQ(costs.memory(0, Recompute::kFull, {1, 0}).activations, 2 * (layer + again));
  // Everything except the input is recomputed. The gradient of the output, which has the same size, is allocated as
  // well.
  EXPECT_DOUBLE_EQ(costs.memory(0, Recompute::kFull, {1, 0}).working,
                   costs.memory(0, Recompute::kNone, {0, 0}).working + layer);
  for (const RecomputeCase& one : kRecomputeCases) {
    const auto made = schedule::generate(one.schedule, one.pipeline, 8, one.chunks);
    const RecomputeCosts of(workload, {.pipeline = one.pipeline, .microbatches = 8}, made, one.layers);
    for (const Recompute how : kEveryHow) {
      const std::vector<int> counts(one.layers.size(), 1);
      const auto simulated = schedule::simulate(made, of.costs(how, counts)).peak_memory;
      for (int rank = 0; rank < of.ranks(); ++rank)
        EXPECT_DOUBLE_EQ(of.memory(rank, how, counts).activations, simulated[rank]) << one.schedule << " " << rank;
    }
  }
}

std::string limited_config(const std::string& more) {
  return "model: {policy: gpt2, config: {n_embd: 64, n_layer: 4, n_head: 4, n_positions: 128, vocab_size: 500}}\n"
         "data: {format: tokens, path: x, sequence_length: 128, batch_size: 8}\n" +
         more;
}

std::string choice_refusal(const std::string& text) {
  try {
    chosen_recompute(Config::parse(text, "c.yaml"), 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RecomputeChoice, OfAConfiguration) {
  const std::string pipeline = "parallel: {pipeline: 2}\n";
  EXPECT_FALSE(chosen_recompute(Config::parse(limited_config(pipeline), "c.yaml"), 1).has_value());
  const auto ample = chosen_recompute(
      Config::parse(limited_config(pipeline + "schedule: {recompute: auto, memory_limit: 1 GiB}\n"), "c.yaml"), 1);
  ASSERT_TRUE(ample.has_value());
  EXPECT_EQ(ample->how, Recompute::kNone);
  EXPECT_THAT(ample->layers, IsEmpty());
  EXPECT_EQ(ample->longer, 0);
  const std::string limit = std::to_string(static_cast<long long>(0.8 * ample->memory.front().sum())) + " B";
  const auto scarce = chosen_recompute(
      Config::parse(limited_config(pipeline + "schedule: {recompute: auto, memory_limit: " + limit + "}\n"), "c.yaml"),
      1);
  ASSERT_TRUE(scarce.has_value());
  EXPECT_GT(scarce->recomputed(), 0);
  EXPECT_GT(scarce->longer, 0);
  ScheduleConfig applied;
  apply(*scarce, applied);
  EXPECT_EQ(applied.recompute, name_of(scarce->how));
  EXPECT_EQ(applied.recompute_layers, scarce->layers);
}

TEST(RecomputeChoice, RefusesWhatItDoesNotKnow) {
  const std::string limited = "schedule: {recompute: auto, memory_limit: 1 GiB}\n";
  EXPECT_THAT(choice_refusal(limited_config("schedule: {recompute: auto, memory_limit: 100 kB}\n")),
              HasSubstr("schedule.memory_limit: 100000 B is too small: rank 0 of the pipeline needs"));
  EXPECT_THAT(choice_refusal("model: {policy: bert, config: {num_hidden_layers: 2}}\n"
                             "data: {format: tokens, path: x}\n" +
                             limited),
              HasSubstr("the memory of this model's layers is not known"));
  EXPECT_THAT(choice_refusal("model: {policy: gpt2}\n" + limited), HasSubstr("there is no data section"));
  EXPECT_THAT(choice_refusal(limited_config(limited + "lora: {target_modules: all-linear}\n")), HasSubstr("adapters"));
  EXPECT_THAT(choice_refusal(limited_config(limited + "parallel: {zero: 3}\n")), HasSubstr("parallel.zero is 3"));
  EXPECT_THAT(choice_refusal(limited_config(limited + "parallel: {pipeline: 2, vocabulary: pipeline}\n")),
              HasSubstr("parallel.vocabulary is pipeline"));
  EXPECT_THAT(choice_refusal(limited_config(limited + "train: {offload: optimizer}\n")), HasSubstr("train.offload"));
}

TEST(RecomputeChoice, LimitsHaveAUnit) {
  EXPECT_EQ(parse_byte_size("20 GiB"), std::int64_t{20} << 30);
  EXPECT_EQ(parse_byte_size("1.5KiB"), 1536);
  EXPECT_EQ(parse_byte_size("80 GB"), 80'000'000'000);
  for (const char* wrong : {"20", "GiB", "0 GiB", "-1 GiB", "1 gib", "1 G", "1e3 B", "9999999999 TB", ""})
    EXPECT_FALSE(parse_byte_size(wrong).has_value()) << wrong;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1536}, std::int64_t{20} << 30})
    EXPECT_EQ(parse_byte_size(byte_size_text(bytes)), bytes);
}

}  // namespace
}  // namespace gantry::planner
