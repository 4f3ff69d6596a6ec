// Samples to train on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/data/number_type.h"

namespace gantry {

// One entry of a batch, and where a sample's part of it lies among its numbers of that type. A batch has the entry in
// this type; floating ones are cast to the model's precision before its forward, others arrive as they are.
struct SampleEntry {
  std::string name;
  std::int64_t first = 0;
  std::int64_t length = 0;  // numbers, [samples, length] in a batch; 0 without a shape: one number, [samples]
  NumberType type = NumberType::kInt64;
  std::vector<std::int64_t> shape = {};  // of `length` numbers: [samples, shape...] in a batch
};

// input_ids and labels of sequence_length + 1 tokens: the input is the first sequence_length, the labels are the last.
inline std::vector<SampleEntry> next_token_entries(std::int64_t sequence_length) {
  return {{"input_ids", 0, sequence_length}, {"labels", 1, sequence_length}};
}

// The label that counts in no loss.
inline constexpr std::int64_t kNotCounted = -100;

// input_ids, labels (aligned; kNotCounted where nothing counts) and document_ids, sequence_length of each.
inline std::vector<SampleEntry> packed_entries(std::int64_t sequence_length) {
  const std::int64_t s = sequence_length;
  return {{"input_ids", 0, s}, {"labels", s, s}, {"document_ids", 2 * s, s}};
}

// Of an encoder and a decoder: input_ids and attention_mask of the prompt, and the completion's labels.
inline std::vector<SampleEntry> pair_entries(std::int64_t prompt, std::int64_t completion) {
  return {{"input_ids", 0, prompt}, {"attention_mask", prompt, prompt}, {"labels", 2 * prompt, completion}};
}

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;  // samples, at least 1
  // Tokens of a sample; 0 where that is not known, or means nothing.
  virtual std::int64_t sequence_length() const = 0;
  // What was found when it was opened, for people, in one line; "" for nothing to say.
  virtual std::string summary() const { return ""; }
  virtual std::vector<SampleEntry> entries() const { return next_token_entries(sequence_length()); }
  // Writes those numbers of a sample that are of row.type(), as many as the entries of that type reach. Called once for
  // each type of entries(), from any thread. The default is for data sets of tokens: it calls read().
  virtual void read_numbers(std::int64_t index, const NumberRow& row) const {
    if (row.type() != NumberType::kInt64)
      throw UsageError(
          {"data set",
           std::string("it has entries of type ") + facts_of(row.type()).name + ", which read_numbers does not write",
           "", "override read_numbers"});
    read(index, row.as<std::int64_t>());
  }
  // The same of a data set whose numbers are all int64: sequence_length() + 1 tokens by default. The default is a
  // UsageError.
  virtual void read(std::int64_t, std::int64_t*) const {
    throw UsageError({"data set", "it implements neither read nor read_numbers", "", "override one of them"});
  }
};

struct WeightedDataset {
  std::shared_ptr<const Dataset> dataset;
  double weight = 1;  // its share of the samples is this over the sum of all
};

// What a loader gives out: known before anything is read, opened by the ranks that read.
struct SampleSource {
  std::vector<SampleEntry> entries;
  std::int64_t sequence_length = 0;
  std::function<std::vector<WeightedDataset>()> open;  // all with these entries and this length
};

// One dataset of the configured format, at config.path. text: a file, all files below a folder (sorted by path), or a
// glob's files, one after the other, as tokens of config.tokenizer (encoded_text.h), or as bytes: tokens 0 to 255.
// tokens: little-endian uint16. Sample i of these reads tokens [i S, i S + S]. megatron, jsonl, squad and tensors: see
// corpus/megatron_dataset.h, json_lines.h, squad_dataset.h and tensor_file.h. InputError for what can't be read, text
// shorter than a sequence, or a token outside the vocabulary, with its place; `key` names the path's place in the
// configuration.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, std::int64_t vocabulary_size,
                                      const std::string& key = "data.path");

// The path of the configuration, or all its sources. Opens nothing yet; then the errors of open_dataset. A file of
// tensors is opened, for its header.
SampleSource sample_source(const DataConfig& config, std::int64_t vocabulary_size,
                           const std::string& key = "data.path");

}  // namespace gantry
