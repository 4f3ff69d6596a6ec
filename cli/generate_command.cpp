#include "gantry/cli/generate_command.h"

#include <fmt/format.h>

#include "gantry/cli/commands.h"
#include "gantry/cli/number_checks.h"

namespace gantry::cli {
namespace {

void add_model(CLI::App& command, GenerateArguments& arguments) {
  command
      .add_option("--model", arguments.model,
                  "A Hugging Face directory, a step folder, its parent for the newest one, or a directory of "
                  "save_parallelized")
      ->required()
      ->type_name("DIR");
  command
      .add_option("--adapter", arguments.adapters,
                  "A PEFT directory with the adapter to load into the model, or NAME=DIR; repeat the flag for several "
                  "adapters, of which the first is active at the start")
      ->type_name("DIR")
      ->allow_extra_args(false);
  command
      .add_option("--tokenizer", arguments.tokenizer,
                  "A tokenizer file or directory, or bytes; default: the tokenizer of the model")
      ->type_name("PATH");
  command
      .add_option("--stop", arguments.stops,
                  "A token, by number or text, that ends a sequence; repeat the flag for several tokens")
      ->type_name("TOKEN")
      ->allow_extra_args(false);
}

void add_prompts(CLI::App& command, GenerateArguments& arguments) {
  auto* prompt =
      command.add_option("--prompt", arguments.prompts, "A text to continue; repeat the flag for several prompts")
          ->type_name("TEXT")
          ->allow_extra_args(false);
  command
      .add_option("--image", arguments.images,
                  "A JPEG or PNG file for a model with an image encoder; repeat the flag for several images, in the "
                  "order of their marks in the prompts, such as <image>")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->needs(prompt);
  auto* tokens = command
                     .add_option("--tokens", arguments.tokens,
                                 "A prompt as tokens, such as 1,2,3; repeat the flag for several prompts")
                     ->type_name("IDS")
                     ->allow_extra_args(false)
                     ->excludes(prompt);
  auto* features =
      command
          .add_option("--features", arguments.features,
                      "A safetensors file with the input of Whisper's encoder, input_features [texts, mel bins, "
                      "steps]; --tokens are then the first tokens of the texts")
          ->type_name("FILE")
          ->excludes(prompt);
  auto* messages = command
                       .add_option("--messages", arguments.messages,
                                   "A JSON file with the messages of a chat, or JSON lines with one chat per line, to "
                                   "answer by the model's chat template; -: standard input")
                       ->type_name("FILE")
                       ->excludes(prompt)
                       ->excludes(tokens)
                       ->excludes(features);
  command.add_option("--system", arguments.system, "Text of a system message that begins each chat")
      ->type_name("TEXT")
      ->needs(messages);
}

void add_speech(CLI::App& command, GenerateArguments& arguments) {
  auto* tokens = command.get_option("--tokens");
  command
      .add_option(
          "--language", arguments.language,
          "Language of the speech (en, de, ...); default: the one in generation_config.json, or else it is detected")
      ->type_name("NAME")
      ->excludes(tokens);
  command.add_option("--task", arguments.task, "Task for speech: transcribe, or translate (into English) [transcribe]")
      ->type_name("NAME")
      ->excludes(tokens);
  command.add_flag("--timestamps", arguments.time_stamps, "Print the times of each part of the speech, in seconds");
}

void add_lengths(CLI::App& command, GenerateArguments& arguments, int usual) {
  command.add_option("--max-new-tokens", arguments.max_new_tokens,
                     fmt::format("Maximum number of tokens after the prompt [{}]", usual));
  command.add_option("--max-length", arguments.max_length, "Maximum number of tokens including the longest prompt");
  command.add_option("--min-new-tokens", arguments.min_new_tokens, "Minimum number of new tokens before a stop token");
  command.add_option("--min-length", arguments.min_length,
                     "Minimum number of tokens before a stop token, including the longest prompt");
  command.add_option("--repetition-penalty", arguments.repetition_penalty,
                     "Penalty on tokens that the text already contains; above 1: less likely");
  command.add_option("--no-repeat-ngram-size", arguments.no_repeat_ngram_size,
                     "Length of runs of tokens of which no two in a text are equal; 0: no limit [0]");
}

void add_sampling(CLI::App& command, GenerateArguments& arguments) {
  // A function, because CLI11 2.1 sets an optional variable already when the flag is added.
  command.add_flag_function(
      "--sample,!--no-sample", [&arguments](std::int64_t count) { arguments.sample = count > 0; },
      "Sample the tokens instead of choosing the most probable one");
  command.add_option("--temperature", arguments.temperature,
                     "Sampling temperature; above 1: flatter, below 1: sharper distribution [1]");
  command.add_option("--top-k", arguments.top_k, "Sample from the k most probable tokens; 0: all [50]");
  command.add_option("--top-p", arguments.top_p,
                     "Sample from the most probable tokens whose probabilities add up to p [1]");
  command.add_option("--min-p", arguments.min_p,
                     "Sample from tokens with at least this fraction of the highest probability [0]");
  command.add_option("--typical-p", arguments.typical_p,
                     "Sample from the tokens closest to the entropy whose probabilities add up to p [1]");
  command.add_option("--seed", arguments.seed, "Seed of the sampling [1]")->check(at_least_zero());
}

void add_beams(CLI::App& command, GenerateArguments& arguments) {
  command.add_option("--num-beams", arguments.num_beams, "Number of beams of the beam search [1]");
  command.add_option("--length-penalty", arguments.length_penalty,
                     "Beam search: values above 0 favour long sequences [1]");
  command
      .add_option("--early-stopping", arguments.early_stopping,
                  "Beam search: the condition that ends the search of a prompt [false]")
      ->check(CLI::IsMember({"true", "false", "never"}));
  command.add_option("--num-return-sequences", arguments.num_return_sequences, "Number of sequences per prompt [1]");
}

}  // namespace

CLI::App* add_generate_command(CLI::App& app, GenerateArguments& arguments) {
  auto* generate =
      app.add_subcommand("generate", "Generate text with greedy decoding, sampling or beam search, in any layout");
  add_model(*generate, arguments);
  add_prompts(*generate, arguments);
  add_speech(*generate, arguments);
  add_lengths(*generate, arguments, 20);
  add_sampling(*generate, arguments);
  add_beams(*generate, arguments);
  generate->add_flag("--no-cache", arguments.recomputes, "Compute the full text again for every token");
  generate->add_flag("--json", arguments.json, "Print JSON, one object per sequence");
  add_sets(*generate, arguments.sets);
  return generate;
}

CLI::App* add_chat_command(CLI::App& app, GenerateArguments& arguments) {
  auto* chat = app.add_subcommand("chat",
                                  "Talk to a model: each line of the standard input is a message, which the model "
                                  "answers by its chat template. The "
                                  "line /reset forgets the messages before, and /exit ends the chat. With "
                                  "--adapter NAME=DIR, the line /adapter NAME activates an adapter, and /adapter "
                                  "the model without one");
  add_model(*chat, arguments);
  chat->add_option("--system", arguments.system, "Text of a system message that begins the chat")->type_name("TEXT");
  chat->add_flag(
      "--images", arguments.reads_images,
      "Load the model's image encoder. The line /image PATH attaches a JPEG or PNG file to the next message");
  add_lengths(*chat, arguments, kMostTokensOfAnswer);
  add_sampling(*chat, arguments);
  add_sets(*chat, arguments.sets);
  return chat;
}

}  // namespace gantry::cli
