// Data sets of documents that are packed one after the other, and their samples with a mask between documents.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/data/corpus/packed_sequences.h"
#include "gantry/data/dataset.h"

namespace gantry {

class PackedDataset : public Dataset {
 public:
  // The runs of documents that a sample's sequence_length() + 1 tokens are of, in order.
  virtual std::vector<TokenRun> documents(std::int64_t index) const = 0;
  std::vector<SampleToken> tokens_of(std::int64_t index) const override;
};

// The same samples with the entries of packed_entries: tokens see those of their own document alone, whose positions
// begin at 0 with each document and with each sample, and nothing is trained to follow a document's last token.
std::unique_ptr<Dataset> mask_documents(std::unique_ptr<PackedDataset> dataset);

}  // namespace gantry
