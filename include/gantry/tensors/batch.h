// What a rank gets for one step: its replica's samples of the global batch, with the counts that every rank knows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class SentAhead;

struct Batch {
  TensorDict tensors;                  // dim 0 is samples; [samples, ...] each
  std::int64_t samples = 0;            // of this replica; 0 is legal (a last batch shorter than dp)
  std::int64_t first_sample = 0;       // place of the first one in the global batch
  std::int64_t global_samples = 0;     // of the global batch; 0: not known, execute_pipeline then asks the dp ranks
  std::int64_t tokens_per_sample = 0;  // 0: taken from input_ids' dim 1, or 1 where there is none
  std::shared_ptr<SentAhead> ahead{};  // copies of `tensors` on their way to a device; a loader makes them
  TensorDict whole{};  // where `tensors` are this rank's parts of the sequences: masks and documents of all of them
};

// A batch of this rank's tensors alone; counts beyond its own are left for execute_pipeline to find out.
// InputError when tensors differ in dim 0, naming them.
Batch make_batch(TensorDict tensors);

// Splits 0..samples into `parts` half-open pieces as evenly as possible, the first ones larger; never more parts than
// samples.
std::vector<std::pair<std::int64_t, std::int64_t>> split_evenly(std::int64_t samples, std::int64_t parts);

// The samples [begin, end) of a batch, as views; first_sample moves along.
Batch slice(const Batch& batch, std::int64_t begin, std::int64_t end);

// One replica's part of a whole global batch, partitioned as evenly as possible and in order; it may have no sample.
Batch replica_part(const Batch& whole, int replicas, int replica);

}  // namespace gantry
