// Data sets: samples to train on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/data/number_type.h"

namespace gantry {

class TensorDict;

// An entry of a batch, and its position among the numbers of this type in a sample. The batch has the entry in this
// type. Floating-point entries are converted to the model's precision before the forward.
struct SampleEntry {
  std::string name;
  std::int64_t first = 0;
  // Number of elements per sample: [samples, length] in a batch. 0 without a shape: one number, [samples].
  std::int64_t length = 0;
  NumberType type = NumberType::kInt64;
  std::vector<std::int64_t> shape = {};  // shape of the `length` numbers: [samples, shape...] in a batch
};

// input_ids (the first sequence_length of sequence_length + 1 tokens) and labels (the last sequence_length tokens).
inline std::vector<SampleEntry> next_token_entries(std::int64_t sequence_length) {
  return {{"input_ids", 0, sequence_length}, {"labels", 1, sequence_length}};
}

// The label of tokens that do not count in the loss.
inline constexpr std::int64_t kNotCounted = -100;

// input_ids, labels (aligned; kNotCounted if a token does not count) and document_ids, sequence_length of each.
inline std::vector<SampleEntry> packed_entries(std::int64_t sequence_length) {
  const std::int64_t s = sequence_length;
  return {{"input_ids", 0, s}, {"labels", s, s}, {"document_ids", 2 * s, s}};
}

// For encoder-decoder models: input_ids and attention_mask of the prompt, and labels of the completion.
inline std::vector<SampleEntry> pair_entries(std::int64_t prompt, std::int64_t completion) {
  return {{"input_ids", 0, prompt}, {"attention_mask", prompt, prompt}, {"labels", 2 * prompt, completion}};
}

// A token of a sample, as shown to users.
struct SampleToken {
  std::int64_t id = 0;
  std::int64_t document = 0;  // number of the document in the sample
  std::int64_t position = 0;  // in the document, or in the sample if documents are not separated
  bool is_trained = false;    // the loss includes the prediction of the token
  std::string why;            // the reason in a few words, such as "completion"
};

// Samples with a fixed set of entries. Derive your own data sets from it. Reading must be thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;  // number of samples, at least 1
  // Returns the number of tokens per sample; 0 if it is unknown or does not apply.
  virtual std::int64_t sequence_length() const = 0;
  // Returns a description for users, in one line, for example problems found when the data set was opened; "" for none.
  virtual std::string summary() const { return ""; }
  // Returns the tokens of a sample with those that only the labels have, for users; empty if the data set has none.
  virtual std::vector<SampleToken> tokens_of(std::int64_t) const { return {}; }
  // Returns the label of a sample in words, for users; "" if the labels are tokens.
  virtual std::string label_of(std::int64_t) const { return ""; }
  // True if it takes longer to read a sample than to start a thread, for example to decode an image: the threads of
  // data.workers then read the samples of a batch.
  virtual bool is_slow() const { return false; }
  virtual std::vector<SampleEntry> entries() const { return next_token_entries(sequence_length()); }
  // Writes the numbers of a sample that have type row.type(): as many as the entries of this type span. Called once for
  // each type in entries(), from any thread. The default is for data sets of tokens: it calls read().
  virtual void read_numbers(std::int64_t index, const NumberRow& row) const {
    if (row.type() != NumberType::kInt64)
      throw UsageError(
          {"data set",
           std::string("it has entries of type ") + facts_of(row.type()).name + ", which read_numbers does not write",
           "", "override read_numbers"});
    read(index, row.as<std::int64_t>());
  }
  // The same for data sets with int64 numbers only: by default sequence_length() + 1 tokens. Throws UsageError unless
  // it is overridden.
  virtual void read(std::int64_t, std::int64_t*) const {
    throw UsageError({"data set", "it implements neither read nor read_numbers", "", "override one of them"});
  }
};

struct WeightedDataset {
  std::shared_ptr<const Dataset> dataset;
  double weight = 1;  // the data set's share of the samples is weight / sum of all weights
};

// Called from any thread while data are opened, with the number of bytes read or encoded since the last call. Ranks
// that wait for another one to open its data use it to tell slow work from none.
using OpenProgress = std::function<void(std::uint64_t bytes)>;
inline void no_progress(std::uint64_t) {}

// The source of a loader's samples. Its entries are known before it is opened; only ranks that read open it.
struct SampleSource {
  std::vector<SampleEntry> entries;
  std::int64_t sequence_length = 0;
  // All data sets have these entries and this length.
  std::function<std::vector<WeightedDataset>(const OpenProgress& progress)> open;
  // Makes a batch of samples whose shapes differ, unless DataLoaderOptions::collate is set. Not set: the samples have
  // the shapes of `entries`.
  std::function<TensorDict(const std::vector<TensorDict>& samples)> collate = {};
};

// Opens a data set of the configured format at config.path. S is config.sequence_length.
//
//   text      a file, all files below a directory (sorted by path), or the files that match a glob, concatenated, as
//             tokens of config.tokenizer (encoded_text.h), or as bytes (tokens 0 to 255)
//   tokens    the same files with little-endian uint16 tokens; sample i of text and tokens is [i S, i S + S]
//   megatron  see corpus/megatron_dataset.h
//   jsonl     see json_lines.h
//   squad     see squad_dataset.h
//   tensors   see tensor_file.h
//
// Throws InputError, with the position, if the data cannot be read, is shorter than a sequence, or has a token outside
// of the vocabulary. `key` is the configuration key of the path, for messages.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, std::int64_t vocabulary_size,
                                      const std::string& key = "data.path", const OpenProgress& progress = no_progress);

// Returns the files of the configured format at `path`, in the order in which they are read. Throws InputError if
// there are none.
std::vector<std::filesystem::path> data_files(const std::string& format, const std::string& path,
                                              const std::string& key = "data.path");

// Returns the source for the path of the configuration, or for all its sources. It is not opened yet (except a file of
// tensors, for its header); opening throws the errors of open_dataset().
SampleSource sample_source(const DataConfig& config, std::int64_t vocabulary_size,
                           const std::string& key = "data.path");

}  // namespace gantry
