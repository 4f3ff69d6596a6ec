// Generation with experts on several ranks gives the tokens of one rank, although the sequences of replicas
// differ and end at different tokens.
#include "generation_case.h"

namespace gantry::testing {
namespace {

const std::vector<TokenIds> kUneven = {{5, 17, 42, 8, 9}, {7}, {60, 3, 56, 23, 11, 20, 9}, {13, 13, 2}, {1, 2}};

std::vector<std::string> in_float64(const Layout& layout, const std::string& dispatch = "all_to_all") {
  std::vector<std::string> sets = {"precision=float64"};
  if (layout.expert == 1) return sets;
  sets.push_back("experts.dispatch=" + dispatch);
  for (const auto& [axis, size] : {std::pair("data", layout.data), std::pair("context", layout.context),
                                   std::pair("tensor", layout.tensor), std::pair("expert", layout.expert)})
    sets.push_back("parallel." + std::string(axis) + "=" + std::to_string(size));
  if (layout.tensor > 1) sets.emplace_back("parallel.sequence_parallel=true");
  return sets;
}

// Greedy, with sequences that end at different tokens; sampled; beams.
std::vector<GenerationJob> jobs_of(const std::string& folder) {
  GenerationJob greedy{"greedy", kUneven, {.max_new_tokens = 9}};
  const auto tokens = tokens_of(generate_in({}, folder, {greedy}, in_float64({}))[0]);
  greedy.options.stop_tokens = {tokens[0][1], tokens[2][4]};
  return {greedy,
          {"drawn", kUneven, {.max_new_tokens = 5, .sample = true, .seed = 3}},
          {"beams", {kUneven[0], kUneven[1]}, {.max_new_tokens = 5, .num_beams = 3}},
          {"one", {kUneven[2]}, {.max_new_tokens = 4}}};
}

void expect_equal_tokens(const std::string& folder, const std::vector<Layout>& layouts,
                         const std::string& dispatch = "all_to_all") {
  const auto jobs = jobs_of(folder);
  const auto one = generate_in({}, folder, jobs, in_float64({}));
  ASSERT_LT(one[0][0].tokens.size(), 9u) << "ends before the others";
  for (const Layout& layout : layouts) {
    const auto got = generate_in(layout, folder, jobs, in_float64(layout, dispatch));
    ASSERT_EQ(got.size(), jobs.size()) << describe(layout);
    for (std::size_t i = 0; i < jobs.size(); ++i)
      EXPECT_EQ(tokens_of(got[i]), tokens_of(one[i])) << folder << " " << jobs[i].name << " " << describe(layout);
  }
}

TEST(GenerateExperts, ReplicasEndTheirTextsAtOtherTokens) {
  expect_equal_tokens(golden_model("families/mixtral"),
                      {{.data = 2, .expert = 2}, {.data = 4, .expert = 2}, {.pipeline = 2, .data = 3, .expert = 3}});
}

TEST(GenerateExperts, OverEveryAxis) {
  expect_equal_tokens(golden_model("families/mixtral"), {{.tensor = 2, .expert = 2},
                                                         {.context = 2, .expert = 2},
                                                         {.data = 2, .tensor = 2, .expert = 4},
                                                         {.pipeline = 2, .data = 2, .tensor = 2, .expert = 4}});
}

TEST(GenerateExperts, EveryFamilyAndTheOtherDispatcher) {
  for (const char* family : {"qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v3"})
    expect_equal_tokens(golden_model(std::string("families/") + family), {{.pipeline = 2, .data = 2, .expert = 2}},
                        "all_gather");
}

}  // namespace
}  // namespace gantry::testing
