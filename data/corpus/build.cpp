#include "gantry/data/corpus/build.h"

#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <optional>

#include "gantry/core/base/parallel_for.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/corpus/megatron_writer.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

struct Document {
  std::string text;
  TokenIds ids;
  bool is_valid = true;  // UTF-8
};

std::vector<Document> read_batch(DocumentReader& reader) {
  std::vector<Document> batch;
  for (std::string& text : reader.next_batch()) batch.push_back({.text = std::move(text)});
  return batch;
}

void encode_batch(const Tokenizer& tokenizer, bool any_bytes, int threads, std::vector<Document>& batch) {
  parallel_for(batch.size(), static_cast<std::size_t>(threads), [&](std::size_t i) {
    Document& document = batch[i];
    document.is_valid = any_bytes || valid_utf8_prefix(document.text) == document.text.size();
    tokenizer.append(document.text, document.ids);
  });
}

void write_batch(std::vector<Document>& batch, std::optional<std::int64_t> end, MegatronWriter& writer,
                 CorpusSummary& summary) {
  for (auto& document : batch) {
    summary.empty_documents += document.ids.empty() ? 1 : 0;
    summary.replaced_documents += document.is_valid ? 0 : 1;
    if (document.ids.empty()) continue;
    if (end) document.ids.push_back(*end);
    writer.append_sequence(document.ids);
    writer.end_document();
  }
  summary.documents = writer.documents();
  summary.tokens = writer.tokens();
}

void make_folder_of(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  std::error_code failure;
  if (!folder.empty()) fs::create_directories(folder, failure);
  if (failure) throw ResourceError({folder.string(), failure.message(), "a directory that can be created", ""});
}

}  // namespace

CorpusSummary build_corpus(const Tokenizer& tokenizer, const CorpusOptions& options) {
  const auto end = options.append_end ? tokenizer.special().end : std::nullopt;
  if (options.append_end && !end)
    throw UsageError({"--append-eos", fmt::format("the {} tokenizer has no end-of-sequence token", tokenizer.kind()),
                      "eos_token in the tokenizer_config.json next to it", "remove --append-eos"});
  const auto started = std::chrono::steady_clock::now();
  DocumentReader reader(options.files, options.documents);
  make_folder_of(options.output);
  CorpusSummary summary{.bytes = reader.bytes(), .type = token_type_for(tokenizer.size())};
  MegatronWriter writer(options.output, summary.type);
  const bool any_bytes = tokenizer.kind() == "byte";
  for (auto batch = read_batch(reader); !batch.empty(); batch = read_batch(reader)) {
    encode_batch(tokenizer, any_bytes, std::max(1, options.threads), batch);
    write_batch(batch, end, writer, summary);
    summary.bytes_read = reader.bytes_read();
    summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (options.progress) options.progress(summary);
  }
  if (summary.tokens == 0)
    throw InputError({options.files.front(), fmt::format("the {} files contain no tokens", options.files.size()),
                      "text", "check the files"});
  writer.finish();
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return summary;
}

}  // namespace gantry
