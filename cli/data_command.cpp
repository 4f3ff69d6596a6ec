#include "gantry/cli/data_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/cli/token_commands.h"
#include "gantry/core/output.h"
#include "gantry/core/usable_cores.h"
#include "gantry/data/corpus/build.h"

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
  corpus.threads = usable_cores();
  build->add_option("files", corpus.files, "Text files (one document each) or *.jsonl (one document per line)")
      ->required();
  build
      ->add_option("--tokenizer", options->tokenizer,
                   "tokenizer.json, vocab.json, *.model, vocab.txt, a directory with one of them, or bytes")
      ->required()
      ->type_name("PATH");
  build->add_option("--output", corpus.output, "Prefix of the files to write: PREFIX.bin and PREFIX.idx")
      ->required()
      ->type_name("PREFIX");
  build->add_option("--jsonl-key", corpus.documents.jsonl_key, "Member of a *.jsonl line that contains the text")
      ->capture_default_str();
  build->add_flag("--lines", corpus.documents.lines, "Treat each line of a text file as a document");
  build->add_flag("--append-eos", corpus.append_end, "Append the end token of the tokenizer to each document");
  build
      ->add_option("--threads", corpus.threads,
                   "Number of threads; default: the number of cores that this process may use")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  build->add_flag("--json", options->json, "Print the summary as JSON");
  build->callback([options] { run_build(*options); });
  add_token_commands(*group);
  add_show_command(*group, show, run_show);
}

}  // namespace gantry::cli
