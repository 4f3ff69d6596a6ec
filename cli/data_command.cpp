#include "gantry/cli/data_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/cli/number_checks.h"
#include "gantry/cli/token_commands.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/core/io/output.h"
#include "gantry/data/corpus/build.h"
#include "gantry/data/tokenizers/train_tokenizer.h"

namespace gantry::cli {
namespace {

struct DataOptions {
  CorpusOptions corpus;
  std::string tokenizer;
  bool json = false;
};

double rate(const CorpusSummary& summary) {
  return summary.seconds > 0 ? static_cast<double>(summary.tokens) / summary.seconds : 0;
}

// Rewrites one line of the terminal.
void show_progress(const CorpusSummary& summary) {
  fmt::print(
      stderr, "\r\033[K{:.0f}% of {:.1f} MB, {} documents, {:.2f} million tokens/s",
      100.0 * static_cast<double>(summary.bytes_read) / static_cast<double>(std::max<std::int64_t>(summary.bytes, 1)),
      static_cast<double>(summary.bytes) / 1e6, summary.documents, rate(summary) / 1e6);
  std::fflush(stderr);
}

// Clears the progress line before other output is printed, including an error.
struct ProgressLine {
  bool is_shown = ::isatty(STDERR_FILENO) == 1;
  ~ProgressLine() {
    if (is_shown) fmt::print(stderr, "\r\033[K");
  }
};

std::string to_json(const DataOptions& options, const Tokenizer& tokenizer, const CorpusSummary& summary) {
  const nlohmann::ordered_json json = {{"output", options.corpus.output},
                                       {"tokenizer", tokenizer.kind()},
                                       {"vocabulary_size", tokenizer.size()},
                                       {"type", token_type_name(summary.type)},
                                       {"documents", summary.documents},
                                       {"empty_documents", summary.empty_documents},
                                       {"replaced_documents", summary.replaced_documents},
                                       {"tokens", summary.tokens},
                                       {"bytes", summary.bytes},
                                       {"seconds", summary.seconds},
                                       {"tokens_per_second", rate(summary)}};
  return json.dump() + "\n";
}

std::string to_text(const DataOptions& options, const Tokenizer& tokenizer, const CorpusSummary& summary) {
  std::string text = fmt::format(
      "{0}.bin, {0}.idx: {1} documents, {2} tokens of {3} ({4}, vocabulary {5}), {6:.1f} s, {7:.2f} million "
      "tokens/s\n",
      options.corpus.output, summary.documents, summary.tokens, token_type_name(summary.type), tokenizer.kind(),
      tokenizer.size(), summary.seconds, rate(summary) / 1e6);
  if (summary.empty_documents > 0) text += fmt::format("{} empty documents left out\n", summary.empty_documents);
  if (summary.replaced_documents > 0)
    text +=
        fmt::format("{} documents have bytes that are not valid UTF-8, read as U+FFFD\n", summary.replaced_documents);
  return text;
}

struct TrainingOptions {
  TokenizerTraining training;
  std::string model = "bpe";
  bool json = false;
};

void run_train_tokenizer(TrainingOptions options) {
  options.training.model = options.model == "bpe" ? TokenizerModel::kPairs : TokenizerModel::kUnigram;
  const TokenizerTrainingSummary summary = train_tokenizer(options.training);
  const std::string& folder = options.training.folder;
  const nlohmann::ordered_json json = {{"output", folder},
                                       {"model", options.model},
                                       {"vocabulary_size", summary.tokens},
                                       {"documents", summary.documents},
                                       {"bytes", summary.bytes},
                                       {"seconds", summary.seconds}};
  print_output(options.json
                   ? json.dump() + "\n"
                   : fmt::format("{}/tokenizer.json: {} with {} tokens, from {} documents ({:.1f} MB), {:.1f} s\n",
                                 folder, options.model, summary.tokens, summary.documents,
                                 static_cast<double>(summary.bytes) / 1e6, summary.seconds));
}

void add_documents(CLI::App& command, std::vector<std::string>& files, DocumentOptions& documents) {
  command
      .add_option("files", files,
                  "Text files (one document each) or *.jsonl (one document per line), also as .gz or .zst")
      ->required();
  command.add_option("--jsonl-key", documents.jsonl_key, "Member of a *.jsonl line that contains the text")
      ->capture_default_str();
  command.add_flag("--lines", documents.lines, "Treat each line of a text file as a document");
}

void add_threads(CLI::App& command, int& threads) {
  threads = usable_cores();
  command.add_option("--threads", threads, "Number of threads; default: the number of cores that this process may use")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

void add_train_tokenizer(CLI::App& group) {
  CLI::App* command = group.add_subcommand("train-tokenizer", "Make a tokenizer.json from text");
  const auto options = std::make_shared<TrainingOptions>();
  TokenizerTraining& training = options->training;
  training.specials = {"<|endoftext|>"};
  add_documents(*command, training.files, training.documents);
  command->add_option("--output", training.folder, "Directory for tokenizer.json and tokenizer_config.json")
      ->required()
      ->type_name("DIR");
  command->add_option("--model", options->model, "bpe (byte-level, as GPT-2's) or unigram (with byte fallback)")
      ->check(CLI::IsMember({"bpe", "unigram"}))
      ->capture_default_str();
  command->add_option("--vocab-size", training.vocabulary_size, "Number of tokens, with bytes and special tokens")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  command
      ->add_option("--min-frequency", training.min_frequency,
                   "Smallest number of occurrences of a pair that becomes a token of bpe")
      ->check(at_least_zero())
      ->capture_default_str();
  command
      ->add_option("--special-tokens", training.specials,
                   "Special tokens, which get the first ids; the first one is the end token")
      ->type_name("TOKEN")
      ->capture_default_str();
  add_threads(*command, training.threads);
  command->add_flag("--json", options->json, "Print the summary as JSON");
  command->callback([options] { run_train_tokenizer(*options); });
}

void run_build(const DataOptions& options) {
  const auto tokenizer = load_tokenizer(options.tokenizer);
  CorpusSummary summary;
  {
    const ProgressLine line;
    CorpusOptions corpus = options.corpus;
    if (line.is_shown) corpus.progress = show_progress;
    summary = build_corpus(*tokenizer, corpus);
  }
  print_output(options.json ? to_json(options, *tokenizer, summary) : to_text(options, *tokenizer, summary));
}

}  // namespace

void add_data_command(CLI::App& app, DataShowArguments& show, const std::function<void()>& run_show) {
  CLI::App* group = app.add_subcommand("data", "Prepare data for training, and convert between text and tokens");
  group->require_subcommand(1);
  CLI::App* build =
      group->add_subcommand("build", "Tokenize text into token files of Megatron's format (.bin and .idx)");
  const auto options = std::make_shared<DataOptions>();
  CorpusOptions& corpus = options->corpus;
  add_documents(*build, corpus.files, corpus.documents);
  build
      ->add_option("--tokenizer", options->tokenizer,
                   "tokenizer.json, vocab.json, *.model, *.tiktoken, vocab.txt, a directory with one of them, or bytes")
      ->required()
      ->type_name("PATH");
  build->add_option("--output", corpus.output, "Prefix of the files to write: PREFIX.bin and PREFIX.idx")
      ->required()
      ->type_name("PREFIX");
  build->add_flag("--append-eos", corpus.append_end, "Append the end token of the tokenizer to each document");
  add_threads(*build, corpus.threads);
  build->add_flag("--json", options->json, "Print the summary as JSON");
  build->callback([options] { run_build(*options); });
  add_token_commands(*group);
  add_train_tokenizer(*group);
  add_show_command(*group, show, run_show);
}

}  // namespace gantry::cli
