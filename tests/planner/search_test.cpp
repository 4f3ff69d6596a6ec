// The search for layouts: pruning loses none of the best, and the limits of the cluster are kept.
#include "gantry/planner/search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "program.h"

namespace gantry::planner {
namespace {

using gantry::testing::ScratchFolder;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kLlama =
    "model: {policy: llama, config: {hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: 12, "
    "num_attention_heads: 16}}\ndata: {format: text, path: x, sequence_length: 2048, batch_size: 48}\n"
    "precision: bfloat16\n";

std::string llama_of(int words) {
  std::string text = kLlama;
  return text.insert(text.find("hidden_size"), fmt::format("vocab_size: {}, ", words));
}

PlanRequest request_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  const ScratchFolder scratch;
  return read_plan_request(scratch.write("c.yaml", text), sets, /*only_stated=*/false);
}

Cluster devices(int ranks, double gibibytes = 80) {
  Cluster cluster = part_of(load_cluster("a100_80g"), ranks);
  cluster.device.memory_bytes = gibibytes * 1024 * 1024 * 1024;
  return cluster;
}

std::vector<double> seconds_of(const SearchResult& found) {
  std::vector<double> seconds;
  for (const auto& one : found.best) seconds.push_back(one.estimate.step_seconds);
  return seconds;
}

// Compares an estimate of all layouts with the pruned search: with enough memory, with little, and with uneven sizes.
TEST(Search, PruningLosesNoneOfTheBest) {
  for (const auto& [ranks, gibibytes] : {std::pair(4, 80.0), {8, 12.0}, {16, 6.0}, {24, 80.0}}) {
    for (const char* set :
         {"train.steps=1", "schedule.layers=auto", "schedule.microbatches=6", "parallel.vocabulary=auto"}) {
      if (ranks > 8 && std::string(set).starts_with("parallel.vocabulary")) continue;  // slow without pruning
      const PlanRequest request = request_of(kLlama, {set});
      const auto all = search(request, devices(ranks, gibibytes), {.top = 5, .prunes = false});
      const auto pruned = search(request, devices(ranks, gibibytes), {.top = 5});
      SCOPED_TRACE(fmt::format("{} ranks of {} GiB, {}", ranks, gibibytes, set));
      EXPECT_EQ(pruned.layouts, all.layouts);
      EXPECT_LT(pruned.estimated, all.estimated);
      ASSERT_EQ(pruned.best.size(), all.best.size());
      EXPECT_EQ(seconds_of(pruned), seconds_of(all));
    }
  }
}

// The same with open context, experts, vocabulary and layers, and with so little memory that all layouts of some sizes
// are skipped.
TEST(Search, PruningLosesNoneWhereEveryKeyIsOpen) {
  const std::string mixtral =
      "model: {policy: mixtral, config: {hidden_size: 1024, intermediate_size: 3584, num_hidden_layers: 6, "
      "num_attention_heads: 16, num_key_value_heads: 4, num_local_experts: 4}}\ndata: {format: text, path: x, "
      "sequence_length: 2048, batch_size: 8}\nprecision: bfloat16\n";
  for (const auto& [text, gibibytes] : {std::pair(std::string(kLlama), 80.0), {mixtral, 80.0}, {mixtral, 4.0}}) {
    const PlanRequest request =
        request_of(text, {"parallel.context=auto", "parallel.expert=auto", "parallel.vocabulary=auto",
                          "schedule.layers=auto", "schedule.recompute=full", "data.batch_size=8"});
    const auto all = search(request, devices(4, gibibytes), {.top = 5, .prunes = false});
    const auto pruned = search(request, devices(4, gibibytes), {.top = 5});
    EXPECT_EQ(pruned.layouts, all.layouts);
    EXPECT_LT(pruned.estimated, all.estimated);
    ASSERT_FALSE(all.best.empty());
    EXPECT_EQ(seconds_of(pruned), seconds_of(all));
  }
}

// No estimate is below its bound.
TEST(Search, BoundsAreBelowEstimates) {
  const PlanRequest request = request_of(kLlama);
  for (const char* schedule : {"1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "v_1f1b",
                               "dualpipe_v", "gpipe", "breadth_first"})
    for (const auto& [microbatch, shares] : {std::pair(1, false), {2, false}, {6, false}, {1, true}, {6, true}}) {
      const int chunks = std::string(schedule).find("v") == 0 || std::string(schedule).ends_with("_v") ? 2 : 1;
      const Layout layout{.pipeline = 4,
                          .data = 2,
                          .schedule = schedule,
                          .chunks = chunks,
                          .microbatch = microbatch,
                          .shares_vocabulary = shares};
      const Cluster cluster = devices(8);
      if (objection(request.workload, layout, cluster)) continue;  // dualpipe_v needs more microbatches
      EXPECT_LE(least_seconds(request.workload, layout, cluster),
                estimate(request.workload, layout, cluster).step_seconds * (1 + 1e-9))
          << schedule << " " << microbatch << " " << shares;
    }
}

TEST(Search, RespectsWhatIsStated) {
  const auto found = search(request_of(std::string(kLlama) + "parallel: {tensor: 2, zero: auto}\n"
                                                             "schedule: {name: zb_v, microbatch_size: 2}\n",
                                       {"parallel.pipeline=2"}),
                            devices(8));
  ASSERT_FALSE(found.best.empty());
  for (const auto& [layout, estimate] : found.best) {
    EXPECT_EQ(layout.tensor, 2);
    EXPECT_EQ(layout.pipeline, 2);
    EXPECT_EQ(layout.data, 2);
    EXPECT_EQ(layout.schedule, "zb_v");
    EXPECT_EQ(layout.microbatch, 2);
  }
}

TEST(Search, ContextAndExpertsAreOpenOnlyWhereTheFileSaysAuto) {
  for (const auto& one : search(request_of(kLlama), devices(8), {.top = 1000}).best) EXPECT_EQ(one.layout.context, 1);
  const auto found = search(request_of(std::string(kLlama) + "parallel: {context: auto}\n"), devices(8), {.top = 1000});
  std::vector<int> sizes;
  for (const auto& one : found.best) sizes.push_back(one.layout.context);
  EXPECT_THAT(sizes, Contains(4));
}

// Gathered parameters take memory, and gathering them again takes time: with little memory the plan gathers more often.
TEST(Search, WhenParametersAreGatheredIsOpen) {
  const auto gathers = [](double gibibytes, const std::string& set) {
    std::vector<std::string> found;
    for (const auto& one :
         search(request_of(kLlama, {"parallel.zero=3", "parallel.data=4", "parallel.pipeline=2", set}),
                devices(8, gibibytes), {.top = 1000})
             .best)
      found.push_back(one.layout.gather);
    return found;
  };
  const auto roomy = gathers(80, "train.steps=1"), narrow = gathers(3.5, "train.steps=1");
  for (const char* each : {"step", "window", "microbatch"}) EXPECT_THAT(roomy, Contains(each));
  EXPECT_EQ(roomy.front(), "step");
  ASSERT_FALSE(narrow.empty());
  EXPECT_THAT(narrow, ::testing::Not(Contains("step")));
  EXPECT_THAT(gathers(80, "parallel.gather=window"), ::testing::Each("window"));
}

// Sharing a head with the work of several layers saves time; for a small head, the messages cost more.
TEST(Search, TheVocabularyIsOpenWhereTheFileSaysAuto) {
  const auto best = [](int words, const std::string& set) {
    const PlanRequest request = request_of(llama_of(words), {"parallel.pipeline=4", "parallel.tensor=1", set});
    return search(request, devices(8), {.top = 1}).best.at(0).layout;
  };
  EXPECT_TRUE(best(256000, "parallel.vocabulary=auto").shares_vocabulary);
  EXPECT_FALSE(best(256000, "train.steps=1").shares_vocabulary);
  EXPECT_FALSE(best(512, "parallel.vocabulary=auto").shares_vocabulary);
  const Layout stated = best(512, "parallel.vocabulary=pipeline");
  EXPECT_TRUE(stated.shares_vocabulary);
  EXPECT_LE(stated.zero, 1);
}

// All ranks of a pipeline hold equal parts of a shared vocabulary, and no rank waits for a rank with the head.
TEST(Search, ASharedVocabularyIsEvenlyHeld) {
  const PlanRequest request = request_of(llama_of(128000));
  Layout layout{.pipeline = 4, .data = 2};
  const Estimate stages = estimate(request.workload, layout, devices(8));
  layout.shares_vocabulary = true;
  const Estimate shared = estimate(request.workload, layout, devices(8));
  const double table = 128000.0 * 2048 * 2;  // bytes
  EXPECT_NEAR(stages.memory[0].parameters - shared.memory[0].parameters, table / 2, 1e-6 * table);
  EXPECT_NEAR(shared.memory[1].parameters - stages.memory[1].parameters, table / 2, 1e-6 * table);
  EXPECT_NEAR(shared.memory[3].parameters - shared.memory[1].parameters, 2 * 2048, 1e-3);  // the last norm
  EXPECT_LT(shared.step_seconds, stages.step_seconds);
  EXPECT_LT(shared.bubble, stages.bubble);
  layout.zero = 2;
  EXPECT_THAT(objection(request.workload, layout, devices(8)).value_or(""), HasSubstr("does not support zero 2"));
}

TEST(Search, WhereNothingFitsItSaysTheNearest) {
  const auto found = search(request_of(kLlama), devices(2, 2));
  EXPECT_TRUE(found.best.empty());
  ASSERT_TRUE(found.nearest.has_value());
  EXPECT_FALSE(found.nearest->estimate.fits);
  EXPECT_EQ(found.too_large, found.layouts);
  EXPECT_TRUE(search(request_of(kLlama, {"parallel.tensor=3"}), devices(8)).best.empty());
}

// The file that a plan writes has the estimate of the plan.
TEST(Search, TheConfigurationOfALayoutSaysTheSame) {
  const ScratchFolder scratch;
  const std::string path =
      scratch.write("c.yaml", std::string(kLlama) + "schedule: {layers: auto}\nparallel: {vocabulary: auto}\n");
  const PlanRequest request = read_plan_request(path, {}, /*only_stated=*/false);
  for (const auto& [layout, estimate] : search(request, devices(8), {.top = 20}).best) {
    const std::string again = scratch.write("d.yaml", configured(path, {}, overrides_of(layout)).to_yaml());
    const PlanRequest stated = read_plan_request(again, {}, /*only_stated=*/true);
    EXPECT_EQ(stated.stated, layout) << describe(stated.stated) << " and " << describe(layout);
    EXPECT_DOUBLE_EQ(planner::estimate(stated.workload, stated.stated, devices(8)).step_seconds, estimate.step_seconds);
  }
}

// All keys are open, except the vocabulary in one case, because its schedules take seconds to make. The bounds of the
// sizes skip most layouts, so that neither time nor memory grows with their number; planner_bench prints both.
TEST(Search, OfMillionsOfLayoutsFewAreLookedAt) {
  for (const auto& [model, vocabulary] :
       {std::pair("{policy: gpt2, config: {n_embd: 12288, n_layer: 96, n_head: 96, n_positions: 4096}}", "stages"),
        {"{policy: mixtral, config: {hidden_size: 6144, num_hidden_layers: 56, num_attention_heads: 48, "
         "num_key_value_heads: 8, num_local_experts: 64}}",
         "auto"}}) {
    const PlanRequest request =
        request_of(fmt::format("model: {}\ndata: {{format: text, path: x, sequence_length: 4096, batch_size: 16384}}\n"
                               "precision: bfloat16\nparallel: {{context: auto, expert: auto, vocabulary: {}}}\n"
                               "schedule: {{layers: auto}}\n",
                               model, vocabulary));
    const auto found = search(request, devices(16384));
    EXPECT_EQ(found.best.size(), 10u);
    EXPECT_GT(found.layouts, 1'000'000);
    EXPECT_LT(found.bounded, 200'000);
    EXPECT_LT(found.estimated, 2'000);
  }
}

// The same with little memory: the search continues until it is certain that nothing fits.
TEST(Search, ManyRanksOfTooLittleMemoryAreSeenSoon) {
  const PlanRequest request = request_of(
      std::string(kLlama) + "parallel: {context: auto, expert: auto, vocabulary: auto}\nschedule: {layers: auto}\n");
  const auto found = search(request, devices(1024, 0.01));
  EXPECT_TRUE(found.best.empty());
  ASSERT_TRUE(found.nearest.has_value());
  EXPECT_LT(found.bounded, 150'000);
}

}  // namespace
}  // namespace gantry::planner
