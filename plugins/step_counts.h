// The numbers that ranks exchange once at the beginning of each execute_pipeline(), and the numbers of the call that
// follow from them. Every rank computes the same result from the same numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/plugins/criterion.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// The numbers of one rank.
struct RankCounts {
  std::int64_t replica = 0;  // coordinate along dp
  std::int64_t samples = 0;
  std::int64_t tokens = 0;   // tokens per sample; 0: unknown on this rank
  std::int64_t labels = -1;  // counted labels of the replica's samples; -1: unknown on this rank
  std::int64_t images = -1;  // images of the replica's samples; -1: none, or unknown on this rank
  std::int64_t microbatches = 0;
  std::int64_t trains = 0, syncs = 0, adds = 0;  // 0 or 1, see StepPlan

  auto operator<=>(const RankCounts&) const = default;
};

// The numbers of a call.
struct StepCounts {
  std::int64_t global_samples = 0;
  std::int64_t first_sample = 0;       // index of the first sample of this replica
  std::int64_t tokens_per_sample = 0;  // tokens per sample of this replica; 0: unknown on all of its ranks
  // Expected number of counted labels of all replicas: exact if the labels are known before the criterion runs, else
  // the number of tokens. At least 1. Gradients are seeded with its inverse, so it must be equal on all ranks.
  double expected = 1;
  std::int64_t images = 0;             // number of images of all replicas
  bool is_exact = false;               // the labels of all replicas are known
  std::int64_t most_microbatches = 0;  // maximum over the replicas
  bool equal_microbatches = true;
};

// Number of counted labels of a batch of full sequences, if the criterion and the host know it without reading from a
// device; else -1.
std::int64_t known_labels(const Criterion& criterion, const TensorDict& batch);

// Number of images of a batch with pixel_values, without those that pad samples with fewer images: images of zero
// patches or pixels, and images whose first row is 0. Otherwise, and for images on a device, -1.
std::int64_t known_images(const TensorDict& batch);

// Returns the numbers of all ranks along the batch axes and pp, in the order of this group. Collective over it.
std::vector<RankCounts> exchange_counts(const RankCounts& mine, const ProcessGroupMesh& mesh);

// Combines the numbers of all ranks for one replica. Throws InputError if ranks of a replica have different numbers of
// samples, and UsageError if only some ranks train, sync or add to earlier gradients.
StepCounts combine_counts(const std::vector<RankCounts>& ranks, std::int64_t replica);

}  // namespace gantry
