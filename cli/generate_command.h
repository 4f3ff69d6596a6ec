// The flags of `gantry generate`. They are declared once: the front program prints their help, and the engine runs the
// command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::cli {

// The limit of an answer of a chat, unless flags or files state one.
inline constexpr int kMostTokensOfAnswer = 512;

// A value that is not given comes from the model's generation_config.json, or else from the defaults of
// GenerationOptions.
struct GenerateArguments {
  std::string model, tokenizer;
  std::vector<std::string> prompts;  // text
  std::vector<std::string> tokens;   // "1,2,3"
  std::string messages;              // a file of chats, or "-"; empty: none
  std::string system;                // text of a system message; empty: none
  std::vector<std::string> images;   // image files of the prompts
  bool reads_images = false;         // for a chat
  std::string features;              // a safetensors file for a speech encoder; empty: none
  std::string language, task;        // for speech; empty: not given
  bool time_stamps = false;
  std::vector<std::string> stops;     // tokens, by number or text
  std::vector<std::string> adapters;  // PEFT directories, as DIR or NAME=DIR
  std::optional<std::int64_t> max_new_tokens, max_length, min_new_tokens, min_length, top_k, no_repeat_ngram_size;
  std::optional<double> temperature, top_p, min_p, typical_p, repetition_penalty, length_penalty;
  std::optional<int> num_beams, num_return_sequences;
  std::optional<std::uint64_t> seed;
  std::optional<bool> sample;
  std::string early_stopping;  // empty: not given
  bool recomputes = false;
  bool json = false;
  std::vector<std::string> sets;
};

CLI::App* add_generate_command(CLI::App& app, GenerateArguments& arguments);
// `gantry chat`, with the flags that apply to chats.
CLI::App* add_chat_command(CLI::App& app, GenerateArguments& arguments);

}  // namespace gantry::cli
