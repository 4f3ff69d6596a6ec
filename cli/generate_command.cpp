#include "gantry/cli/generate_command.h"

#include "gantry/cli/commands.h"

namespace gantry::cli {
namespace {

void add_prompts(CLI::App& command, GenerateArguments& arguments) {
  command
      .add_option("--model", arguments.model,
                  "A Hugging Face directory, a step folder, its parent for the newest one, or a directory of "
                  "save_parallelized")
      ->required()
      ->type_name("DIR");
  command.add_option("--adapter", arguments.adapter, "A directory of PEFT's whose adapter the model gets")
      ->type_name("DIR");
  auto* prompt = command.add_option("--prompt", arguments.prompts, "A text to continue; may be given several times")
                     ->type_name("TEXT")
                     ->allow_extra_args(false);
  command.add_option("--tokens", arguments.tokens, "A prompt as tokens, 1,2,3; may be given several times")
      ->type_name("IDS")
      ->allow_extra_args(false)
      ->excludes(prompt);
  command
      .add_option("--features", arguments.features,
                  "A safetensors file with what Whisper's encoder reads, input_features [texts, mel bins, steps]; "
                  "--tokens then say how texts begin")
      ->type_name("FILE")
      ->excludes(prompt);
  command
      .add_option("--tokenizer", arguments.tokenizer,
                  "A tokenizer's file or folder, or bytes; the model's own if left out")
      ->type_name("PATH");
  command
      .add_option("--stop", arguments.stops, "A token, by number or text, that ends a sequence; several times for more")
      ->type_name("TOKEN")
      ->allow_extra_args(false);
}

void add_speech(CLI::App& command, GenerateArguments& arguments) {
  auto* tokens = command.get_option("--tokens");
  command
      .add_option("--language", arguments.language,
                  "Of speech: en, de, ... of the model's generation_config.json; detected where neither names one")
      ->type_name("NAME")
      ->excludes(tokens);
  command.add_option("--task", arguments.task, "Of speech: transcribe, or translate into English [transcribe]")
      ->type_name("NAME")
      ->excludes(tokens);
  command.add_flag("--timestamps", arguments.time_stamps, "Of speech: when each part was said, in seconds");
}

void add_lengths(CLI::App& command, GenerateArguments& arguments) {
  command.add_option("--max-new-tokens", arguments.max_new_tokens, "At most so many tokens after the prompt [20]");
  command.add_option("--max-length", arguments.max_length, "At most so many with the longest prompt");
  command.add_option("--min-new-tokens", arguments.min_new_tokens, "No stop token before so many new ones");
  command.add_option("--min-length", arguments.min_length, "No stop token before so many with the longest prompt");
  command.add_option("--repetition-penalty", arguments.repetition_penalty,
                     "Above 1: tokens of the text become unlikelier");
}

void add_drawing(CLI::App& command, GenerateArguments& arguments) {
  // As a function: CLI11 2.1 sets an optional flag when it is added, not only when it is given.
  command.add_flag_function(
      "--sample,!--no-sample", [&arguments](std::int64_t count) { arguments.sample = count > 0; },
      "Draw the tokens in place of taking the likeliest");
  command.add_option("--temperature", arguments.temperature,
                     "Drawn tokens: above 1 more even, below 1 likelier ones [1]");
  command.add_option("--top-k", arguments.top_k, "Draw from the likeliest so many; 0: all [50]");
  command.add_option("--top-p", arguments.top_p, "Draw from the likeliest that make up this probability [1]");
  command.add_option("--seed", arguments.seed, "Of the draws [1]")->check(CLI::NonNegativeNumber);
}

void add_beams(CLI::App& command, GenerateArguments& arguments) {
  command.add_option("--num-beams", arguments.num_beams, "Beam search with so many beams [1]");
  command.add_option("--length-penalty", arguments.length_penalty, "Of beams: above 0 favours long sequences [1]");
  command.add_option("--early-stopping", arguments.early_stopping, "Of beams: when a prompt's search ends [false]")
      ->check(CLI::IsMember({"true", "false", "never"}));
  command.add_option("--num-return-sequences", arguments.num_return_sequences, "Sequences for each prompt [1]");
}

}  // namespace

CLI::App* add_generate_command(CLI::App& app, GenerateArguments& arguments) {
  auto* generate =
      app.add_subcommand("generate", "Continue texts: greedily, by sampling or beam search, in any layout");
  add_prompts(*generate, arguments);
  add_speech(*generate, arguments);
  add_lengths(*generate, arguments);
  add_drawing(*generate, arguments);
  add_beams(*generate, arguments);
  generate->add_flag("--no-cache", arguments.recomputes, "Compute the whole text again for every token");
  generate->add_flag("--json", arguments.json, "One object a sequence");
  add_sets(*generate, arguments.sets);
  return generate;
}

}  // namespace gantry::cli
