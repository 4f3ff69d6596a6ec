#include "gantry/data/dataset.h"

#include <filesystem>
#include <fmt/format.h>
#include <glob.h>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/corpus/megatron_dataset.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/encoding_cache.h"
#include "gantry/data/json_lines.h"
#include "gantry/data/squad_dataset.h"
#include "gantry/data/tensor_file.h"
#include "gantry/data/token_files.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/data/weighted_sources.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

// A path of data, and its key in the configuration.
struct Place {
  std::string key, path;
  std::string text() const { return key + " " + path; }
};

std::vector<fs::path> files_of(const Place& place) {
  const std::string& path = place.path;
  if (is_folder(path)) return files_below(path);
  if (path_exists(path)) return {path};
  std::vector<fs::path> files;
  glob_t found{};
  if (::glob(path.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      if (is_file(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (files.empty())
    throw InputError({place.key, "'" + path + "' is not a file or directory and matches no file",
                      "text or tokens to train on", "check the path; it is relative to the working directory"});
  return files;
}

std::unique_ptr<PackedDataset> open_text(const Place& place, const DataConfig& config, std::int64_t vocabulary,
                                         const OpenProgress& progress) {
  constexpr std::int64_t kBytes = 256;
  const std::string tokenizer = choose_text_tokenizer(config.tokenizer, "", vocabulary);
  const TextEnds ends{config.bos, config.eos};
  if (!is_byte_tokenizer(tokenizer))
    return open_encoded_text(files_of(place), {tokenizer, ends, encoding_resources(config)}, config.sequence_length,
                             vocabulary, place.text(), progress);
  ends_of_training_text(*load_tokenizer(tokenizer), ends);  // throws for tokens that bytes do not have
  if (vocabulary < kBytes)
    throw InputError({"data.format text",
                      fmt::format("bytes are tokens 0 to 255, but the model's vocabulary is {}", vocabulary),
                      "a vocabulary of at least 256", "set model.config.vocab_size"});
  return open_token_files(files_of(place), 1, config.sequence_length, vocabulary, place.text());
}

std::vector<SampleEntry> entries_of(const DataConfig& config) {
  if (config.format == "squad") return answer_span_entries(config.sequence_length);
  if (config.format == "jsonl" && config.target_length > 0)
    return pair_entries(config.sequence_length, config.target_length);
  const bool separate = config.format == "jsonl" || config.document_mask;
  return separate ? packed_entries(config.sequence_length) : next_token_entries(config.sequence_length);
}

}  // namespace

std::vector<fs::path> data_files(const std::string& format, const std::string& path, const std::string& key) {
  if (format != "megatron") return files_of({key, path});
  std::vector<fs::path> files;
  for (const char* ending : {".idx", ".bin"})
    if (is_file(path + ending)) files.emplace_back(path + ending);
  if (files.empty())
    throw InputError({key, "'" + path + "' has no .bin and .idx", "the prefix of Megatron's files", "check the path"});
  return files;
}

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, std::int64_t vocabulary_size, const std::string& key,
                                      const OpenProgress& progress) {
  const Place place{key, config.path};
  if (config.format == "megatron")
    return open_megatron_dataset(config.path, config.sequence_length, vocabulary_size, config.document_mask);
  if (config.format == "jsonl")
    return open_json_lines(files_of(place), line_rules(config, vocabulary_size), place.text(), progress);
  if (config.format == "tensors") return open_tensor_file(config.path, key);
  if (config.format == "squad")
    return open_squad_dataset(config.path, config.tokenizer, config.sequence_length, vocabulary_size);
  auto packed = config.format == "tokens"
                    ? open_token_files(files_of(place), 2, config.sequence_length, vocabulary_size, place.text())
                    : open_text(place, config, vocabulary_size, progress);
  if (config.document_mask) return mask_documents(std::move(packed));
  return packed;
}

SampleSource sample_source(const DataConfig& config, std::int64_t vocabulary_size, const std::string& key) {
  const auto open = [config, vocabulary_size, key](const OpenProgress& progress) {
    return open_sources(config, key, [&](const std::string& path, const std::string& where) {
      DataConfig one = config;
      one.path = path;
      return open_dataset(one, vocabulary_size, where, progress);
    });
  };
  if (config.format != "tensors")
    return {.entries = entries_of(config), .sequence_length = config.sequence_length, .open = open};
  const auto first = open(no_progress).front().dataset;  // its header has the entries, which all ranks need
  return {.entries = first->entries(), .sequence_length = first->sequence_length(), .open = open};
}

}  // namespace gantry
