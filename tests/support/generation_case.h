// Generation from a Hugging Face directory in any layout, and the reference cases of tests/golden/generation.
#pragma once

#include <gtest/gtest.h>
#include <mutex>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/generation/generate.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {

struct GenerationJob {
  std::string name;
  std::vector<TokenIds> prompts;
  GenerationOptions options;
};
using Sequences = std::vector<GeneratedSequence>;

inline std::vector<TokenIds> tokens_of(const Sequences& sequences) {
  std::vector<TokenIds> tokens;
  for (const auto& sequence : sequences) tokens.push_back(sequence.tokens);
  return tokens;
}

inline std::string golden_model(const std::string& name) { return GANTRY_SOURCE_DIR "/tests/golden/" + name; }

inline std::string describe(const Layout& layout) {
  return "tp " + std::to_string(layout.tensor) + " pp " + std::to_string(layout.pipeline) + " dp " +
         std::to_string(layout.data) + (layout.context > 1 ? " cp " + std::to_string(layout.context) : "") +
         (layout.expert > 1 ? " ep " + std::to_string(layout.expert) : "");
}

// Runs the jobs in order on every rank, with the weights of model.path or initial weights. Expects the same
// tokens on all ranks. Returns the sequences of each job.
inline std::vector<Sequences> generate_in(const Layout& layout, Config config, const std::vector<GenerationJob>& jobs) {
  const Config sizes = layout_config(layout);
  config.parallel.tensor = sizes.parallel.tensor;
  config.parallel.pipeline = sizes.parallel.pipeline;
  config.parallel.data = sizes.parallel.data;
  config.parallel.context = sizes.parallel.context;
  config.parallel.expert = sizes.parallel.expert;
  config.comm.timeout_seconds = 30;
  config.comm.threads_per_rank = 1;
  if (!config.model.path.empty()) config = resolve_model(std::move(config));
  std::mutex lock;
  std::vector<Sequences> all;
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto boosted = booster.boost(build_model(config), nullptr, cross_entropy());
    if (!config.model.path.empty()) load_weights(config, boosted, plugin->mesh());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Sequences mine = generate(boosted, *plugin, jobs[i].prompts, jobs[i].options);
      const std::lock_guard guard(lock);
      if (all.size() == i) all.push_back(mine);
      EXPECT_EQ(tokens_of(mine), tokens_of(all[i])) << world.describe() << " has other tokens than its peers";
    }
  });
  EXPECT_EQ(code, 0) << describe(layout);
  return all;
}

// The same for the model in a Hugging Face directory. `sets`: further KEY=VALUE settings.
inline std::vector<Sequences> generate_in(const Layout& layout, const std::string& folder,
                                          const std::vector<GenerationJob>& jobs,
                                          const std::vector<std::string>& sets = {}) {
  return generate_in(layout, Config::parse(nlohmann::json({{"model", {{"path", folder}}}}).dump(), "test", sets), jobs);
}

struct ReferenceCases {
  std::string folder;
  std::vector<GenerationJob> jobs;
  std::vector<std::vector<TokenIds>> tokens;  // expected tokens of each job
  std::vector<std::vector<double>> scores;
};

inline ReferenceCases read_reference_cases(const std::string& name) {
  const auto file = nlohmann::json::parse(read_file(golden_model("generation/" + name + ".json")));
  ReferenceCases cases{.folder = golden_model(file["model"].get<std::string>())};
  for (const auto& item : file["cases"]) {
    const auto& given = item["options"];
    GenerationOptions options;
    options.stop_tokens = item["stop_tokens"].get<std::vector<std::int64_t>>();
    if (given.contains("max_new_tokens")) options.max_new_tokens = given["max_new_tokens"].get<std::int64_t>();
    if (given.contains("max_length")) options.max_length = given["max_length"].get<std::int64_t>();
    options.min_new_tokens = given.value("min_new_tokens", 0);
    options.min_length = given.value("min_length", 0);
    options.repetition_penalty = given.value("repetition_penalty", 1.0);
    options.no_repeat_ngram_size = given.value("no_repeat_ngram_size", 0);
    options.bad_words = given.value("bad_words_ids", std::vector<TokenIds>());
    if (given.contains("forced_bos_token_id"))
      options.forced_bos_token = given["forced_bos_token_id"].get<std::int64_t>();
    options.forced_eos_tokens = given.value("forced_eos_token_id", std::vector<std::int64_t>());
    options.num_beams = given.value("num_beams", 1);
    options.num_return_sequences = given.value("num_return_sequences", 1);
    options.length_penalty = given.value("length_penalty", 1.0);
    const std::string early = given.value("early_stopping", "false");
    if (early != "false") options.early_stopping = early == "true" ? EarlyStopping::kYes : EarlyStopping::kNever;
    cases.jobs.push_back({item["name"], item["prompts"].get<std::vector<TokenIds>>(), options});
    cases.tokens.push_back(item["tokens"].get<std::vector<TokenIds>>());
    cases.scores.push_back(item["scores"].get<std::vector<double>>());
  }
  return cases;
}

// Half of the cases in turn, on devices a quarter; all with GANTRY_LONG=1.
inline void expect_reference(const std::string& name, const Layout& layout) {
  ReferenceCases cases = read_reference_cases(name);
  ASSERT_GT(cases.jobs.size(), 10u);
  const std::size_t index = next_turn("jobs"), parts = are_ranks_on_devices() ? 4 : 2;
  cases.jobs = turn_of(index, parts, cases.jobs);
  cases.tokens = turn_of(index, parts, cases.tokens);
  cases.scores = turn_of(index, parts, cases.scores);
  const auto got = generate_in(layout, cases.folder, cases.jobs);
  ASSERT_EQ(got.size(), cases.jobs.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(tokens_of(got[i]), cases.tokens[i]) << name << ", " << cases.jobs[i].name << ", " << describe(layout);
    for (std::size_t k = 0; k < cases.scores[i].size(); ++k)
      EXPECT_NEAR(got[i].at(k).score, cases.scores[i][k], 1e-5 * std::max(1.0, std::abs(cases.scores[i][k])))
          << name << ", " << cases.jobs[i].name;
  }
}

}  // namespace gantry::testing
