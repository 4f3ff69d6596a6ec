// The embedding and the head of a boosted model, if their rows are sharded over all ranks of a pipeline.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/split_head.h"
#include "gantry/plugins/criterion.h"
#include "gantry/plugins/parallel_options.h"
#include "gantry/policies/sharder.h"

namespace gantry {

// Each purpose has a separate group, so that its messages are in the order of the microbatches.
class SharedVocabulary {
 public:
  // The axes over which the rows are sharded.
  static ShardAxes axes_of(const ProcessGroupMesh& mesh);

  // For a model that was sharded over these axes. Throws ConfigError, naming the feature, for features that
  // do not support this. Collective over the world.
  SharedVocabulary(const StageModule& module, const ParallelOptions& options, const ProcessGroupMesh& mesh,
                   const PipelineStageManager& stages);
  // The criterion in the form that the passes compute; empty: only logits are computed. Throws ConfigError if
  // it is not a cross entropy of the model's logits.
  std::optional<LabelledLoss> loss_of(const Criterion& criterion) const;

 private:
  friend class VocabularyPasses;
  nn::Embedding embedding_{nullptr};
  nn::Linear head_{nullptr};
  nn::SplitHeadOptions options_;  // without the loss
  std::string output_;
  int first_rank_, last_rank_;        // the pipeline ranks with the first and the last stage
  ProcessGroup* sequence_ = nullptr;  // activations are sequence shards over this group; null: none
  std::unique_ptr<ProcessGroup> hidden_, embedding_gradients_;                          // along pp
  std::unique_ptr<ProcessGroup> embeddings_, statistics_, hidden_gradients_, outputs_;  // and tp
};

}  // namespace gantry
