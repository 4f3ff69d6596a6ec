// The planner's memory estimate compared with runs: preferences, rewards and distillation.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planned_memory.h"
#include "program.h"

namespace gantry::testing {
namespace {

// Fraction of the peak: plans of heads without a vocabulary are up to 8% too low over tensor ranks.
constexpr double kMostRewardError = 0.10;

nlohmann::json model_of(int hidden, int layers) {
  return {{"model_type", "llama"},
          {"hidden_size", hidden},
          {"intermediate_size", hidden * 11 / 4},
          {"num_hidden_layers", layers},
          {"num_attention_heads", hidden / 32},
          {"num_key_value_heads", hidden / 32},
          {"vocab_size", 1024},
          {"tie_word_embeddings", false},
          {"max_position_embeddings", 128}};
}

// Rows of 128 tokens: a prompt with two completions, or with one.
std::string preference_rows(bool are_pairs) {
  std::string lines;
  for (int i = 0; i < 32; ++i) {
    const auto letters = [&](int count, char first) { return std::string(count, static_cast<char>(first + i % 20)); };
    nlohmann::json line = {{"prompt", letters(30, 'a')}};
    if (are_pairs)
      line.update({{"chosen", letters(33, 'b')}, {"rejected", letters(33, 'c')}});
    else
      line.update({{"completion", letters(97, 'b')}, {"label", i % 2 == 0}});
    lines += line.dump() + "\n";
  }
  return lines;
}

Config preference_config(const ScratchFolder& scratch, const std::string& objective, const std::string& keys,
                         const nlohmann::json& model = model_of(128, 4)) {
  const std::string rows = scratch.write("rows.jsonl", preference_rows(objective.find("kto") == std::string::npos));
  return Config::parse(fmt::format(
      "model: {{policy: llama, config: {}}}\n"
      "data: {{format: jsonl, path: \"{}\", sequence_length: 128, batch_size: 8, prefetch: 0, tokenizer: bytes}}\n"
      "comm: {{threads_per_rank: 1}}\ntrain: {{steps: 3, objective: {{{}}}}}\n{}",
      model.dump(), rows, objective, keys));
}

TEST(PlannedObjectives, PreferencesAreThoseOfRuns) {
  const ScratchFolder scratch;
  for (const auto& [objective, keys] : std::vector<std::pair<std::string, std::string>>{
           {"name: dpo", ""},
           {"name: dpo", "parallel: {tensor: 2}\n"},
           {"name: dpo", "parallel: {pipeline: 2}\nschedule: {microbatches: 4}\n"},
           {"name: dpo", "parallel: {data: 2, zero: 3}\n"},
           {"name: dpo", "precision: bfloat16\n"},
           {"name: dpo", "lora: {r: 8, target_modules: all-linear}\n"},
           {"name: dpo", "schedule: {recompute: full}\n"},
           {"name: ipo", ""},
           {"name: simpo, cpo_alpha: 0.5", ""},
           {"name: cpo, cpo_alpha: 1", ""},
           {"name: orpo", ""},
           {"name: orpo", "precision: bfloat16\n"},
           {"name: kto", ""},
           {"name: kto", "parallel: {tensor: 2}\n"},
           {"name: kto", "parallel: {pipeline: 2}\nschedule: {microbatches: 4}\n"},
       })
    expect_memory_of_plan(preference_config(scratch, objective, keys), objective + " " + keys);
}

TEST(PlannedObjectives, RewardHeadsAreThoseOfRuns) {
  const ScratchFolder scratch;
  nlohmann::json model = model_of(128, 4);
  model.update({{"architectures", {"LlamaForSequenceClassification"}}, {"num_labels", 1}, {"pad_token_id", 0}});
  const std::vector<std::pair<std::string, double>> layouts = {
      {"", kMostError},
      {"parallel: {tensor: 2}\n", kMostRewardError},
      {"parallel: {pipeline: 2}\nschedule: {microbatches: 4}\n", kMostError},
      {"parallel: {data: 2, zero: 3}\n", kMostError}};
  for (const auto& [keys, most_error] : layouts)
    expect_memory_of_plan(preference_config(scratch, "name: reward", keys, model), "reward " + keys, most_error);
}

TEST(PlannedObjectives, TeachersAreThoseOfRuns) {
  const ScratchFolder scratch;
  write_random_model(scratch / "teacher", model_of(256, 6));
  const std::string text = some_letters(5000);
  const std::string file = scratch.write("text.txt", text);
  for (const auto& [objective, keys] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"", "schedule: {microbatches: 4}\n"},
           {"", "precision: bfloat16\n"},
           {"loss_type: jsd, alpha: 0.5, beta: 0.5", ""},
           {"temperature: 2, alpha: 0.5", "parallel: {tensor: 2}\n"},
           {"", "parallel: {pipeline: 2}\nschedule: {microbatches: 4}\n"},
           {"", "parallel: {data: 2, zero: 3}\n"},
           {"", "parallel: {data: 2, zero: 1}\nschedule: {recompute: full}\n"},
           {"", "parallel: {context: 2}\n"},
           {"", "lora: {r: 8, target_modules: all-linear}\n"},
           {"teacher_parallel: {tensor: 2}", "parallel: {data: 2}\n"},
           {"teacher_parallel: {pipeline: 2}", "parallel: {data: 2}\n"},
           {"teacher_parallel: {tensor: 2}", "parallel: {pipeline: 2}\nschedule: {microbatches: 4}\n"},
           {"teacher_parallel: {tensor: 1}", "parallel: {tensor: 2}\n"},
           {"hidden_weight: 1", "parallel: {tensor: 2}\n"},
           {"hidden_weight: 1, teacher_parallel: {tensor: 2}",
            "parallel: {pipeline: 2}\nschedule: {microbatches: 4}\n"},
           {"teacher_parallel: {tensor: 2, pipeline: 2}", "parallel: {data: 2, tensor: 2}\n"},
       })
    expect_memory_of_plan(
        Config::parse(fmt::format(
            "model: {{policy: llama, config: {}}}\n"
            "data: {{format: text, path: \"{}\", sequence_length: 128, batch_size: 8, prefetch: 0, tokenizer: bytes}}\n"
            "comm: {{threads_per_rank: 1}}\n"
            "train: {{steps: 3, objective: {{name: distill, teacher: \"{}\"{}{}}}}}\n{}",
            model_of(128, 4).dump(), file, scratch / "teacher", objective.empty() ? "" : ", ", objective, keys)),
        "distill " + objective + " " + keys);
}

}  // namespace
}  // namespace gantry::testing
