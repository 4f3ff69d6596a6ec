// Runs of `gantry train` with preferences, and their metrics.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "program.h"

namespace gantry::testing {

inline std::string pairs_of_texts(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += nlohmann::json{{"prompt", fmt::format("{}+{}=", i, i)},
                            {"chosen", std::to_string(2 * i)},
                            {"rejected", std::string(static_cast<std::size_t>(i % 4 + 1), 'x')}}
                 .dump() +
             "\n";
  return lines;
}

inline std::string judged_texts(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += nlohmann::json{{"prompt", fmt::format("{}+{}=", i, i)},
                            {"completion", i % 3 == 0 ? "x" : std::to_string(2 * i)},
                            {"label", i % 3 != 0}}
                 .dump() +
             "\n";
  return lines;
}

struct PreferenceRun {
  const ScratchFolder scratch;
  std::string config;

  explicit PreferenceRun(const std::string& objective, const std::string& lines = pairs_of_texts(11)) {
    config = scratch.write(
        "train.yaml",
        fmt::format("model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, "
                    "n_positions: 32, resid_pdrop: 0.1, embd_pdrop: 0, attn_pdrop: 0}}}}\nprecision: float64\n"
                    "data: {{format: jsonl, path: \"{}\", sequence_length: 24, batch_size: 4}}\n"
                    "optimizer: {{lr: 0.01}}\ntrain: {{steps: 5, objective: {}}}\n",
                    scratch.write("pairs.jsonl", lines), objective));
  }

  Outcome train(const std::string& output, const std::string& sets = "") const {
    return run_program(fmt::format("{} train {} --set output={} {}", gantry_program(), config, scratch / output, sets));
  }

  std::vector<nlohmann::json> metrics(const std::string& output) const {
    std::vector<nlohmann::json> all;
    std::istringstream lines(read_file(scratch / (output + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
};

inline void expect_same_metrics(const std::vector<nlohmann::json>& expected, const std::vector<nlohmann::json>& actual,
                                const std::string& label) {
  ASSERT_EQ(actual.size(), expected.size()) << label;
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/margins",
                            "rewards/accuracies", "kl", "eval_loss", "eval_rewards/margins", "eval_rewards/accuracies"})
      if (expected[i].contains(key))
        EXPECT_NEAR(actual[i].at(key).get<double>(), expected[i].at(key).get<double>(), 1e-9) << label << i << key;
}

}  // namespace gantry::testing
