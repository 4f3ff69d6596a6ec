// The layouts of a student and of a teacher with a layout of its own, and the way of the teacher's outputs between
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gantry/core/mesh.h"
#include "gantry/plugins/distillation_loss.h"
#include "gantry/plugins/plugin.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/trainer/teacher_batches.h"

namespace gantry {

// A rank of the last stage, and the part of an output [samples, tokens, columns] that its model returns.
struct OutputRank {
  int rank = 0, replica = 0;
  int context = 0;             // index among the ranks that share a sequence
  std::vector<Range> columns;  // parts of the last dimension
  bool sends = false;          // true on one of the ranks that have the same part
};

// The ranks of the last stage. `head`: how the columns are sharded over tp.
std::vector<OutputRank> output_ranks(const Mesh& mesh, const PipelineStageManager& stages, const ShardSpec& head,
                                     std::int64_t columns);

// The number of columns of the teacher's outputs.
struct OutputSizes {
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;  // 0: the hidden states are not compared
};

// The properties of a model's layout that the exchange needs.
struct LogitsLayout {
  LogitsLayout(Plugin& plugin, const Boosted& boosted, const OutputSizes& sizes);
  // The tokens of a sequence that a rank has, in its order.
  std::vector<Range> tokens_of(const OutputRank& rank, std::int64_t tokens) const;
  // True if each rank has the same tokens in `other`, a layout over the same mesh.
  bool has_tokens_of(const LogitsLayout& other) const;

  std::vector<OutputRank> logits;
  std::vector<OutputRank> hidden;    // with all columns on each rank; empty: the hidden states are not compared
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

  // Runs the teacher on a batch of its own replica; returns the outputs of this rank, undefined if it has none.
  using Compute = std::function<TeacherLogits(const Batch& batch)>;
  // Sets `outputs` to those of the teacher for the student's batch, in the student's layout: [samples, tokens, columns]
  // of this rank; undefined on ranks without the last stage. May reuse its memory. Calls `compute` on all ranks, once
  // for all replicas whose entries have the same shapes. Collective over the group.
  void compute_outputs(const Batch& batch, const Compute& compute, TeacherLogits& outputs) const;

 private:
  // The ranks that have an output in the layouts of the two models.
  struct OutputRanks {
    const std::vector<OutputRank>&student, &teacher;
  };
  // The samples of a round by replica of the two models, and the tokens of each sequence.
  struct Rows {
    const std::vector<Range>&students, &teachers;
    std::int64_t tokens = 0;
  };
  torch::Tensor exchanged(const Rows& rows, const OutputRanks& ranks, const torch::Tensor& computed,
                          const torch::Tensor& last) const;
  // The output of a replica without samples; undefined if this rank is not of the last stage.
  torch::Tensor without_samples(const Batch& batch, const std::vector<OutputRank>& ranks) const;
  // This rank's entry; null if it is not of the last stage.
  const OutputRank* own_rank(const std::vector<OutputRank>& ranks) const;

  LogitsLayout student_, teacher_;
  torch::Device device_;
  ProcessGroup& group_;
};

}  // namespace gantry
