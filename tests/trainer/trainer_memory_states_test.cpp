// The planner's memory estimate compared with runs: states of the optimizers, averages of the weights, and bases of
// adapters in 4 or 8 bits.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planned_memory.h"
#include "program.h"

namespace gantry::testing {
namespace {

const char* const kWideModel = R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 768,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 256,
    "max_position_embeddings": 128, "tie_word_embeddings": false})";

std::string training_keys(const ScratchFolder& scratch) {
  const std::string text = some_letters(5000);
  return fmt::format(
      "data: {{format: text, path: \"{}\", sequence_length: 128, batch_size: 4, prefetch: 0, tokenizer: bytes}}\n"
      "comm: {{threads_per_rank: 1}}\n",
      scratch.write("text.txt", text));
}

TEST(PlannedStates, OfOptimizersAreThoseOfRuns) {
  const ScratchFolder scratch;
  const auto model = nlohmann::json::parse(kWideModel);
  for (const std::string keys : {
           "optimizer: {name: sgd}\n",
           "optimizer: {name: lion}\n",
           "optimizer: {name: adafactor}\n",
           "optimizer: {name: adafactor}\nprecision: bfloat16\n",
           "optimizer: {name: adamw8bit}\n",
           "optimizer: {name: adamw8bit}\nprecision: bfloat16\n",
           "optimizer: {name: adamw8bit}\nparallel: {data: 2, zero: 1}\n",
           "optimizer: {name: muon}\n",
           "optimizer: {name: muon}\nprecision: bfloat16\n",
           "optimizer: {name: muon}\nparallel: {pipeline: 2}\nschedule: {microbatches: 4}\n",
           "optimizer: {name: muon}\nparallel: {data: 2, zero: 1}\n",
           "optimizer: {name: muon}\nparallel: {tensor: 2}\n",
           "optimizer: {name: adamw8bit}\nparallel: {tensor: 2}\n",
           "optimizer: {name: adamw8bit}\nparallel: {data: 2, zero: 3}\n",
           "optimizer: {name: adafactor}\nparallel: {data: 2, zero: 3}\n",
           "optimizer: {name: adamw_bf16}\nprecision: bfloat16\n",
           "optimizer: {name: adamw_bf16}\nparallel: {data: 2, zero: 3}\n",
           "train: {steps: 3, ema: 0.99}\n",
           "train: {steps: 3, ema: 0.99}\nprecision: bfloat16\n",
           "train: {steps: 3, ema: 0.99}\nparallel: {data: 2, zero: 2}\n",
       })
    expect_memory_of_plan(
        Config::parse(fmt::format("model: {{policy: llama, config: {}}}\n{}{}{}", model.dump(), training_keys(scratch),
                                  keys, keys.starts_with("train") ? "" : "train: {steps: 3}\n")),
        keys);
}

TEST(PlannedStates, OfBasesInFewBitsAreThoseOfRuns) {
  const ScratchFolder scratch;
  write_random_model(scratch / "base", nlohmann::json::parse(kWideModel));
  const std::string adapters = "lora: {r: 8, target_modules: all-linear}\n",
                    dora = "lora: {r: 8, target_modules: all-linear, use_dora: true}\n";
  for (const auto& [quantize, keys] : std::vector<std::pair<std::string, std::string>>{
           {"", dora},
           {"", dora + "precision: bfloat16\n"},
           {"", dora + "parallel: {tensor: 2}\n"},
           {", quantize: nf4", adapters},
           {", quantize: nf4", adapters + "precision: bfloat16\n"},
           {", quantize: nf4, quantize_double: true", adapters + "precision: bfloat16\n"},
           {", quantize: nf4, quantize_double: true", adapters + "parallel: {tensor: 2}\n"},
           {", quantize: nf4", adapters + "schedule: {recompute: full}\n"},
           {", quantize: nf4", adapters + "parallel: {pipeline: 2}\nschedule: {microbatches: 4}\n"},
           {", quantize: nf4", adapters + "parallel: {data: 2, zero: 3}\n"},
           {", quantize: fp4", adapters},
           {", quantize: int8", adapters + "precision: bfloat16\n"},
           {", quantize: fp8", adapters},
           {", quantize: nf4", dora + "precision: bfloat16\n"},
       })
    expect_memory_of_plan(Config::parse(fmt::format("model: {{path: \"{}\"{}}}\n{}train: {{steps: 3}}\n{}",
                                                    scratch / "base", quantize, training_keys(scratch), keys)),
                          quantize + " " + keys);
}

}  // namespace
}  // namespace gantry::testing
