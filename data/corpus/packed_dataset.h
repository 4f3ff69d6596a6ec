// Data sets of concatenated documents, and samples of them with a mask between documents.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/data/corpus/packed_sequences.h"
#include "gantry/data/dataset.h"

namespace gantry {

class PackedDataset : public Dataset {
 public:
  // Returns the runs of documents that make up the sequence_length() + 1 tokens of a sample, in order.
  virtual std::vector<TokenRun> documents(std::int64_t index) const = 0;
  std::vector<SampleToken> tokens_of(std::int64_t index) const override;
};

// Returns the same samples with the entries of packed_entries(). Tokens attend only to tokens of their own
// document. Positions begin at 0 in each document and in each sample. The last token of a document has no
// label.
std::unique_ptr<Dataset> mask_documents(std::unique_ptr<PackedDataset> dataset);

}  // namespace gantry
