// The layouts of a student and of a teacher with a layout of its own, and the way of the logits between them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gantry/core/mesh.h"
#include "gantry/plugins/plugin.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/trainer/teacher_batches.h"

namespace gantry {

// A rank of the last stage, and the logits that its model returns.
struct LogitsRank {
  int rank = 0, replica = 0;
  int context = 0;             // index among the ranks that share a sequence
  std::vector<Range> columns;  // parts of the vocabulary
  bool sends = false;          // true on one of the ranks that have the same logits
};

// The ranks of the last stage. `head`: how the logits are sharded over tp.
std::vector<LogitsRank> logits_ranks(const Mesh& mesh, const PipelineStageManager& stages, const ShardSpec& head,
                                     std::int64_t vocabulary);

// The properties of a model's layout that the exchange needs.
struct LogitsLayout {
  LogitsLayout(Plugin& plugin, const Boosted& boosted, std::int64_t vocabulary);
  // The tokens of a sequence that a rank has, in its order.
  std::vector<Range> tokens_of(const LogitsRank& rank, std::int64_t tokens) const;

  std::vector<LogitsRank> logits;
  std::vector<int> readers;          // a rank that has the batch, by replica
  std::vector<int> replica_of_rank;  // by world rank
  int replicas = 1;
  const SequenceParts* parts = nullptr;  // with context parallelism; not owned
};

class TeacherLayouts {
 public:
  // `group`: all ranks; not owned.
  TeacherLayouts(LogitsLayout student, LogitsLayout teacher, torch::Device device, ProcessGroup& group)
      : student_(std::move(student)), teacher_(std::move(teacher)), device_(device), group_(group) {}

  // Runs the teacher on a batch of its own replica; returns the logits of this rank, undefined if it has none.
  using Compute = std::function<torch::Tensor(const Batch& batch)>;
  // Returns the teacher's logits of the student's batch, in the student's layout: [samples, tokens, vocabulary] of this
  // rank; undefined on ranks without the last stage. May reuse the memory of `last`. Calls `compute` on all ranks, once
  // for all replicas whose entries have the same shapes. Collective over the group.
  torch::Tensor logits_of(const Batch& batch, const Compute& compute, const torch::Tensor& last) const;

 private:
  torch::Tensor exchanged(const TeacherRound& round, const std::vector<Range>& teachers, const torch::Tensor& computed,
                          const torch::Tensor& last) const;
  // This rank's entry; null if it is not of the last stage.
  const LogitsRank* own_rank(const LogitsLayout& layout) const;

  LogitsLayout student_, teacher_;
  torch::Device device_;
  ProcessGroup& group_;
};

}  // namespace gantry
