// The routers of a boosted model over its steps: the divisors of their losses, the number of tokens per
// expert, and DeepSeek-V3's update of the expert bias (arXiv 2412.19437), which depends on these numbers.
#pragma once

#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/router_balance.h"
#include "gantry/plugins/parallel_options.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

class ModelRouters {
 public:
  // Uses the routers that this rank holds. Throws ConfigError if `experts` requires something that the model
  // lacks. Owns no argument. `in_shards`: each rank of tp has a part of every sequence.
  ModelRouters(const ExpertsOptions& experts, const StageModule& module, const ProcessGroupMesh& mesh, bool in_shards);

  // The losses of routers for a call that runs `microbatches` of a batch of full sequences. `adds`: it is one
  // of several calls of a step. `counts`: this rank counts the labels, as one rank of each replica does.
  // Throws UsageError if the number of the step's labels is unknown before its first backward. Collective
  // over the batch axes and pp, if there are losses.
  nn::RouterBalance balance(const Batch& full, const Criterion& criterion, int microbatches, bool adds,
                            const ExecuteOptions& options, bool counts) const;
  // The counter for training forwards; null without routers on this rank.
  nn::RouterChoices* choices() { return routers_.empty() ? nullptr : &choices_; }

  // Called before the first call of a step: discards counts that no optimizer step has used.
  void begin();
  // Called when the step's gradients are synced. Collective over the ranks that see other tokens.
  void sync();
  // Called after an optimizer step that was not skipped.
  void stepped();

  // The counts of the last synced step for this rank's routers, to be read back together with other values.
  // Undefined without routers on this rank.
  const torch::Tensor& counted() const { return counted_; }
  // Puts the numbers that were read from counted() into a list of those of all stages, with zeros elsewhere.
  // The list has the same length on all ranks, and is summed over them.
  std::vector<double> summand(const std::vector<double>& read) const;
  // Converts the sums to loads, by layer.
  ExpertLoads loads(const std::vector<double>& sums) const;

 private:
  struct Known {
    std::string path;
    std::int64_t experts = 0;
  };
  struct Held {
    std::size_t place = 0;             // index among the routers of all stages
    nn::RouterImpl* router = nullptr;  // owned by the model
    int correction = -1;               // index of its expert bias among the held parameters; -1: none
  };
  torch::Tensor tokens_of(std::size_t held) const;
  void correct(std::size_t held);

  ExpertsOptions experts_;
  const StageModule& module_;
  const ProcessGroupMesh& mesh_;
  bool in_shards_;
  std::vector<Known> all_;  // the routers of all stages, in the model's order
  std::vector<Held> routers_;
  std::vector<nn::ExpertsImpl*> experts_of_model_;
  nn::RouterChoices choices_;
  // int64, summed over all ranks: the tokens of each expert of the held routers, one router after the other,
  // and then the number of choices that no expert has computed.
  torch::Tensor counted_;
  bool is_synced_ = false;  // the counts belong to gradients that wait for a step
};

}  // namespace gantry
