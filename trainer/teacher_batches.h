// The batches of a teacher whose replicas are not those of the student.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/shard_spec.h"
#include "gantry/tensors/batch.h"

namespace gantry {

// The form of the batch of a replica of the student, which all ranks know.
struct BatchNote {
  struct Entry {
    std::string name;
    torch::ScalarType type;
    std::vector<std::int64_t> shape;  // without the samples
    bool operator==(const Entry&) const = default;
  };
  std::int64_t samples = 0;
  std::int64_t tokens_per_sample = 0;
  std::vector<Entry> entries;
};

// Returns the notes of the ranks `readers`, each of which passes its batch. Collective over `group`, all ranks.
std::vector<BatchNote> note_batches(const Batch& batch, const std::vector<int>& readers, ProcessGroup& group);

// A batch of the teacher: the samples of the student's replicas whose entries have the same shapes, in order. So no
// sample is padded.
struct TeacherRound {
  std::vector<Range> samples;  // the samples of each replica of the student in the round; empty for other replicas
  std::int64_t size = 0;       // samples of all of them
  std::size_t example = 0;     // a replica of this round
};

// The rounds that have all samples of all replicas. Each replica with samples is in one round.
std::vector<TeacherRound> rounds_of(const std::vector<BatchNote>& notes);

// The samples of a round that each of the teacher's replicas computes; may be empty.
std::vector<Range> samples_of_teachers(std::int64_t size, int replicas);

// Moves the samples of a round from the readers to all ranks; rank r is in the replica replica_of_rank[r] of the
// teacher. Returns this rank's batch. Collective over `group`, all ranks.
Batch move_batch(const Batch& mine, const TeacherRound& round, const BatchNote& note, const std::vector<int>& readers,
                 const std::vector<Range>& teachers, const std::vector<int>& replica_of_rank, ProcessGroup& group);

}  // namespace gantry
