#include "gantry/generation/generate.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/cli/engine/adapter_choice.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/generation_choice.h"
#include "gantry/cli/engine/model_images.h"
#include "gantry/cli/engine/trained_model.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/generation/prompt_images.h"
#include "gantry/generation/prompt_text.h"
#include "gantry/generation/time_stamps.h"
#include "gantry/launch/launch.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

// The request of one call, prepared for every rank.
struct Job {
  const GenerateArguments& arguments;
  AdapterChoice adapters;
  TrainedModel model;
  std::unique_ptr<PromptText> text;  // null: no tokenizer is known, and none is needed
  std::vector<TokenIds> prompts;
  std::vector<std::string> adapter_of_prompt;  // empty: chosen_adapter() of none
  std::vector<TokenIds> begun;  // start of the sequences of each prompt; empty if an encoder reads the prompt
  GenerationOptions options;

  bool reads_speech() const { return !arguments.features.empty(); }
  bool shows_times() const { return options.time_stamps.has_value(); }
  bool is_chat() const { return !arguments.messages.empty(); }
  bool shows_prompt() const { return !is_chat() && arguments.images.empty(); }
  bool shows_text() const { return !arguments.prompts.empty() || is_chat() || (reads_speech() && text); }
};

bool has_encoder(const Config& config) {
  const auto& family = models::families().at(config.model.policy);
  return family.task && family.task(nlohmann::json::parse(config.model.config_json)) == "pairs";
}

// Returns the input of a speech encoder, one row for each text.
TensorDict features_of(const GenerateArguments& arguments, const Config& config) {
  const auto& family = models::families().at(config.model.policy);
  const std::string& entry = family.inputs.front();
  const bool reads_speech = entry == "input_features", is_given = !arguments.features.empty();
  if (reads_speech && !is_given)
    throw UsageError({"gantry generate", "a " + config.model.policy + " model reads speech", "--features FILE",
                      "write " + entry + " into a safetensors file"});
  if (!reads_speech && is_given)
    throw UsageError({"--features", "a " + config.model.policy + " model does not read speech", "a whisper model",
                      "use --prompt or --tokens"});
  if (!is_given) return {};
  const torch::Tensor features = read_safetensors(arguments.features).at(entry);
  if (features.dim() == 0)
    throw InputError({arguments.features, entry + " is " + describe(features), "[texts, mel bins, steps]", ""});
  return {{entry, features}};
}

// Nothing without images. `flag`: the one that names them.
std::optional<PromptImages> images_of(const GenerateArguments& arguments, const TrainedModel& model,
                                      const std::string& flag) {
  if (flag.empty()) return std::nullopt;
  PromptImages images(image_reader_of(model, flag));
  images.read(arguments.images);
  return images;
}

// The adapter of each chat.
std::vector<std::string> adapters_of(const std::vector<FileChat>& chats, const AdapterChoice& choice) {
  std::vector<std::string> names;
  for (const FileChat& chat : chats) names.push_back(chosen_adapter(choice, chat.adapter, chat.where));
  const bool differ = std::ranges::any_of(names, [&](const std::string& name) { return name != names.front(); });
  if (differ && std::ranges::any_of(chats, &FileChat::has_images))
    throw InputError({"--messages", "chats with images name several adapters", "one adapter for chats with images",
                      "write the chats of each adapter into a file of its own"});
  return names;
}

Job prepare(const GenerateArguments& arguments) {
  if (arguments.prompts.empty() && arguments.tokens.empty() && arguments.features.empty() && arguments.messages.empty())
    throw UsageError({"gantry generate", "there is no prompt", "--prompt TEXT, --messages FILE or --tokens 1,2,3",
                      "add a prompt; for a model that reads speech use --features FILE"});
  const std::vector<FileChat> chats =
      arguments.messages.empty() ? std::vector<FileChat>() : read_chats(arguments.messages, arguments.system);
  const std::string flag = !arguments.images.empty()                           ? "--image"
                           : std::ranges::any_of(chats, &FileChat::has_images) ? "--messages"
                                                                               : "";
  const AdapterChoice adapters = choose_adapters(arguments.adapters);
  Job job{.arguments = arguments,
          .adapters = adapters,
          .model = find_trained_model(arguments.model, arguments.sets, adapters, !flag.empty()),
          .text = {},
          .prompts = {},
          .adapter_of_prompt = adapters_of(chats, adapters),
          .begun = {}};
  const std::string& tokenizer = arguments.tokenizer.empty() ? job.model.tokenizer : arguments.tokenizer;
  if (!tokenizer.empty()) job.text = std::make_unique<PromptText>(tokenizer);
  if (!job.text && job.shows_text())
    throw InputError({arguments.model, "the model has no tokenizer", "a tokenizer, because the prompt is text",
                      "use --tokenizer, or --tokens"});
  auto images = images_of(arguments, job.model, flag);
  for (const auto& prompt : arguments.prompts)
    job.prompts.push_back(job.text->encode(images ? images->expanded(prompt) : prompt));
  for (const auto& tokens : arguments.tokens) job.prompts.push_back(parse_tokens(tokens));
  if (job.is_chat()) {
    const ChatPrompts prompts(tokenizer, job.model.chat_template, job.model.template_kwargs);
    for (const FileChat& chat : chats)
      job.prompts.push_back(
          prompts.encode(nlohmann::ordered_json::parse(chat.json), chat.where, images ? &*images : nullptr));
  }
  job.options = options_of(arguments, job.model, job.text.get());
  if (!arguments.prompts.empty() || job.is_chat()) job.options.vocabulary = job.text->size();
  if (images) job.options.images = images->entries();
  job.options.encoder = features_of(arguments, job.model.config);
  const std::size_t texts =
      job.reads_speech() ? static_cast<std::size_t>(job.options.encoder.begin()->second.size(0)) : job.prompts.size();
  if (job.reads_speech() && job.prompts.size() == 1) job.prompts.resize(texts, TokenIds(job.prompts.front()));
  job.begun = has_encoder(job.model.config) ? std::vector<TokenIds>(texts) : job.prompts;
  return job;
}

// Returns the text of the sequence, without the stop token and without time stamps. Answers and texts about images have
// no prompt.
std::string text_of(const Job& job, const GeneratedSequence& sequence, bool with_prompt) {
  TokenIds tokens = job.shows_prompt() ? job.begun[sequence.prompt] : TokenIds();
  const std::string prompt = job.text->decode(tokens);
  std::copy_if(sequence.tokens.begin(), sequence.tokens.end() - (sequence.stopped ? 1 : 0), std::back_inserter(tokens),
               [&](std::int64_t token) { return !job.shows_times() || token < job.options.time_stamps->first; });
  const std::string full = job.text->decode(tokens);
  return with_prompt || !full.starts_with(prompt) ? full : full.substr(prompt.size());
}

nlohmann::json segments_of(const Job& job, const GeneratedSequence& sequence) {
  nlohmann::json segments = nlohmann::json::array();
  for (const auto& [begin, end, tokens] : generation::timed_texts(sequence.tokens, *job.options.time_stamps)) {
    segments.push_back({{"start", begin}, {"end", nullptr}, {"tokens", tokens}});
    if (end) segments.back()["end"] = *end;
    if (job.shows_text()) segments.back()["text"] = valid_utf8(job.text->decode(tokens));
  }
  return segments;
}

// Prints one line for each part: "[0.00 - 6.44] text".
void print_segments(const Job& job, const GeneratedSequence& sequence) {
  for (const auto& [begin, end, tokens] : generation::timed_texts(sequence.tokens, *job.options.time_stamps)) {
    std::string said =
        job.shows_text() ? valid_utf8(job.text->decode(tokens)) : fmt::format("{}", fmt::join(tokens, ","));
    said.erase(0, said.find_first_not_of(' '));
    print_output(fmt::format("[{:.2f} - {}] {}\n", begin, end ? fmt::format("{:.2f}", *end) : "", said));
  }
}

void print_json(const Job& job, const GeneratedSequence& sequence, int number) {
  nlohmann::json line = {{"prompt", sequence.prompt + 1},
                         {"sequence", number},
                         {"prompt_tokens", job.prompts.empty() ? TokenIds() : job.prompts[sequence.prompt]},
                         {"tokens", sequence.tokens},
                         {"stopped", sequence.stopped}};
  if (job.options.num_beams > 1) line["score"] = sequence.score;
  if (!sequence.language.empty()) line["language"] = sequence.language;
  if (job.shows_times()) line["segments"] = segments_of(job, sequence);
  if (job.shows_text()) line["text"] = valid_utf8(text_of(job, sequence, /*with_prompt=*/false));
  print_output(line.dump() + "\n");
}

void print_plain(const Job& job, const GeneratedSequence& sequence, int number, bool is_alone) {
  if (!is_alone)
    print_output(fmt::format("--- prompt {}, sequence {}{}{}\n", sequence.prompt + 1, number,
                             job.options.num_beams > 1 ? fmt::format(", score {:.6f}", sequence.score) : "",
                             sequence.language.empty() ? "" : ", language " + sequence.language));
  if (job.shows_times()) return print_segments(job, sequence);
  if (job.shows_text()) return print_output(valid_utf8(text_of(job, sequence, /*with_prompt=*/true)) + "\n");
  TokenIds tokens = job.begun[sequence.prompt];
  tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
  print_output(fmt::format("{}\n", fmt::join(tokens, ",")));
}

void print_all(const Job& job, const std::vector<GeneratedSequence>& sequences) {
  std::int64_t prompt = -1;
  int number = 0;
  for (const auto& sequence : sequences) {
    number = sequence.prompt == prompt ? number + 1 : 1;
    prompt = sequence.prompt;
    job.arguments.json ? print_json(job, sequence, number) : print_plain(job, sequence, number, sequences.size() == 1);
  }
}

// A single sequence without beam search is printed token by token.
bool streams(const Job& job) {
  return job.shows_text() && !job.shows_times() && !job.arguments.json && job.begun.size() == 1 &&
         job.options.num_beams == 1 && job.options.num_return_sequences == 1;
}

std::string adapter_of(const Job& job, std::size_t prompt) {
  const bool is_named = prompt < job.adapter_of_prompt.size();
  return is_named ? job.adapter_of_prompt[prompt] : chosen_adapter(job.adapters, std::nullopt, "");
}

// The sequences of all prompts. Those of one adapter are generated together.
std::vector<GeneratedSequence> by_adapters(const Job& job, Boosted& boosted, HybridParallelPlugin& plugin,
                                           NamedAdapters* adapters) {
  std::map<std::string, std::vector<std::size_t>> prompts_of;
  for (std::size_t i = 0; i < job.prompts.size(); ++i) prompts_of[adapter_of(job, i)].push_back(i);
  if (prompts_of.size() <= 1) {
    activate_adapter(adapters, adapter_of(job, 0));
    return generate(boosted, plugin, job.prompts, job.options);
  }
  std::vector<GeneratedSequence> all;
  for (const auto& [name, places] : prompts_of) {
    activate_adapter(adapters, name);
    std::vector<TokenIds> prompts;
    for (const std::size_t place : places) prompts.push_back(job.prompts[place]);
    for (GeneratedSequence& sequence : generate(boosted, plugin, prompts, job.options)) {
      sequence.prompt = static_cast<std::int64_t>(places[static_cast<std::size_t>(sequence.prompt)]);
      all.push_back(std::move(sequence));
    }
  }
  std::ranges::stable_sort(all, {}, &GeneratedSequence::prompt);
  return all;
}

void generate_rank(World& world, const Job& job) {
  auto* plugin = new HybridParallelPlugin(world, job.model.config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  // The criterion is not computed. With it the logits stay sharded over tp, so that greedy decoding gathers none.
  auto boosted = booster.boost(build_model(job.model.config), nullptr, cross_entropy());
  load_trained_weights(job.model, boosted, *plugin);
  const auto adapters = load_named_adapters(job.adapters, job.model.config, boosted, plugin->mesh());
  if (!world.is_main() || !streams(job)) {
    const auto sequences = by_adapters(job, boosted, *plugin, adapters.get());
    if (world.is_main()) print_all(job, sequences);
    return;
  }
  activate_adapter(adapters.get(), adapter_of(job, 0));
  GrowingText shown;
  TokenIds tokens = job.shows_prompt() ? job.begun.front() : TokenIds();
  shown.show(job.text->decode(tokens));
  GenerationOptions options = job.options;
  options.on_token = [&](std::int64_t, std::int64_t token) {
    tokens.push_back(token);
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) == options.stop_tokens.end())
      shown.show(job.text->decode(tokens));
  };
  const auto sequences = generate(boosted, *plugin, job.prompts, options);
  shown.finish(text_of(job, sequences.front(), /*with_prompt=*/true));
  print_output("\n");
}

}  // namespace

int run_generate(const GenerateArguments& arguments) {
  const Job job = prepare(arguments);
  return launch(job.model.config, [&](World& world) { generate_rank(world, job); });
}

}  // namespace gantry::cli
