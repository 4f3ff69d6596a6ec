// A rank's batch for one step: its replica's samples of the global batch, and counts that every rank knows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class SentAhead;

// A batch of samples. The global counts must be equal on all ranks.
struct Batch {
  TensorDict tensors;             // [samples, ...] each
  std::int64_t samples = 0;       // samples of this replica; can be 0 (a last batch smaller than dp)
  std::int64_t first_sample = 0;  // index of the first sample in the global batch
  // Samples of the global batch; 0: unknown, then execute_pipeline() gathers it over dp.
  std::int64_t global_samples = 0;
  std::int64_t tokens_per_sample = 0;  // 0: from dimension 1 of input_ids, or 1 without input_ids
  std::shared_ptr<SentAhead> ahead{};  // copies of `tensors` in flight to a device, created by a loader
  // With context parallelism, where `tensors` are parts of the sequences: masks and documents of the full sequences.
  TensorDict full{};
};

// Returns the entries with the samples along dim 0. Positions in three rows have the rows first, as in Hugging Face's
// models: `position_ids` [3, samples, tokens] becomes [samples, tokens, 3] if `input_ids` is [samples, tokens].
TensorDict samples_first(TensorDict tensors);

// Creates a batch from this rank's tensors only; execute_pipeline() determines the global counts. The
// tensors are those of samples_first(). Throws InputError with the names of tensors that differ in dimension 0.
Batch make_batch(TensorDict tensors);

// Splits the range [0, samples) into `parts` half-open ranges as evenly as possible, the larger ones first; at most
// `samples` ranges.
std::vector<std::pair<std::int64_t, std::int64_t>> split_evenly(std::int64_t samples, std::int64_t parts);

// Returns the samples [begin, end) of a batch as views, with an adjusted first_sample.
Batch slice(const Batch& batch, std::int64_t begin, std::int64_t end);

// Returns one replica's part of a global batch, which is partitioned as evenly as possible and in order. It can be
// empty.
Batch replica_part(const Batch& full, int replicas, int replica);

}  // namespace gantry
