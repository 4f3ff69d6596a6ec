// The routers of a boosted model over its steps: what their losses are divided by, how many tokens chose each expert,
// and DeepSeek-V3's correction (arXiv 2412.19437), which follows from that.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/nn/router_balance.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

class ModelRouters {
 public:
  // Those that this rank holds. ConfigError where `experts` asks for what the model does not have. The mesh is not
  // owned. `in_shards`: ranks of tp have parts of every sequence.
  ModelRouters(const ExpertsConfig& experts, const StageModule& module, const ProcessGroupMesh& mesh, bool in_shards);

  // The losses of a step in which this call runs `microbatches` of a batch, here whole sequences; `adds`: it is one of
  // several calls; `counts`: this rank, one of each replica, has labels and counts them. UsageError where the step's
  // labels are not known before its first backward. Collective over the batch axes and pp where there are losses.
  nn::RouterBalance balance(const Batch& whole, const Criterion& criterion, int microbatches, bool adds,
                            const ExecuteOptions& options, bool counts) const;
  // Where a training forward counts; null without routers.
  nn::RouterChoices* choices() { return routers_.empty() ? nullptr : &choices_; }

  // Before a step's first call: what was counted and not stepped goes.
  void begin();
  // When the step's gradients are synced. Collective over the ranks that see other tokens.
  void sync();
  // After an optimizer step that was taken.
  void stepped();
  // Tokens of each expert in the last synced step, by the router's path: [experts], of all ranks.
  const std::map<std::string, torch::Tensor>& counts() const { return counts_; }

 private:
  struct Held {
    std::string path;
    nn::RouterImpl* router = nullptr;  // the model's
  };

  ExpertsConfig experts_;
  const ProcessGroupMesh& mesh_;
  bool in_shards_;
  std::vector<Held> routers_;
  nn::RouterChoices choices_;
  std::map<std::string, torch::Tensor> counts_;
  bool is_synced_ = false;  // the counts are of gradients that wait for a step
};

}  // namespace gantry
