// The flags of `gantry generate`, declared once: the front end answers their help, the engine runs them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::cli {

// What is not given is as the model's generation_config.json says, or the default of GenerationOptions.
struct GenerateArguments {
  std::string model, tokenizer;
  std::string adapter;               // a directory of PEFT's; empty: none
  std::vector<std::string> prompts;  // text
  std::vector<std::string> tokens;   // "1,2,3"
  std::string features;              // a safetensors file for an encoder of sound; empty: none
  std::string language, task;        // of speech; empty: not given
  bool time_stamps = false;
  std::vector<std::string> stops;  // tokens, by number or text
  std::optional<std::int64_t> max_new_tokens, max_length, min_new_tokens, min_length, top_k;
  std::optional<double> temperature, top_p, repetition_penalty, length_penalty;
  std::optional<int> num_beams, num_return_sequences;
  std::optional<std::uint64_t> seed;
  std::optional<bool> sample;
  std::string early_stopping;  // empty: not given
  bool recomputes = false;
  bool json = false;
  std::vector<std::string> sets;
};

CLI::App* add_generate_command(CLI::App& app, GenerateArguments& arguments);

}  // namespace gantry::cli
