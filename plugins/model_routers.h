// The routers of a boosted model over its steps: what their losses are divided by, how many tokens chose each expert,
// and DeepSeek-V3's correction (arXiv 2412.19437), which follows from that.
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
  // Those that this rank holds. ConfigError where `experts` asks for what the model does not have. Nothing is
  // owned. `in_shards`: ranks of tp have parts of every sequence.
  ModelRouters(const ExpertsOptions& experts, const StageModule& module, const ProcessGroupMesh& mesh, bool in_shards);

  // The losses of a step in which this call runs `microbatches` of a batch, here full sequences; `adds`: it is one of
  // several calls; `counts`: this rank, one of each replica, has labels and counts them. UsageError where the step's
  // labels are not known before its first backward. Collective over the batch axes and pp where there are losses.
  nn::RouterBalance balance(const Batch& full, const Criterion& criterion, int microbatches, bool adds,
                            const ExecuteOptions& options, bool counts) const;
  // Where a training forward counts; null without routers.
  nn::RouterChoices* choices() { return routers_.empty() ? nullptr : &choices_; }

  // Before a step's first call: what was counted and not stepped goes.
  void begin();
  // When the step's gradients are synced. Collective over the ranks that see other tokens.
  void sync();
  // After an optimizer step that was taken.
  void stepped();

  // The numbers that ranks of all stages receive about the last synced step. This rank's numbers, if it computed them:
  // to be read back with others; undefined without routers here.
  const torch::Tensor& counted() const { return counted_; }
  // The numbers that were read, as this rank's summand of those of all stages, which are equally long on all ranks.
  std::vector<double> summand(const std::vector<double>& read) const;
  // The sums, by layer.
  ExpertLoads loads(const std::vector<double>& sums) const;

 private:
  struct Known {
    std::string path;
    std::int64_t experts = 0;
  };
  struct Held {
    std::size_t place = 0;             // among those of all stages
    nn::RouterImpl* router = nullptr;  // the model's
    int correction = -1;               // among the held parameters; -1: it has none
  };
  torch::Tensor tokens_of(std::size_t held) const;
  void correct(std::size_t held);

  ExpertsOptions experts_;
  const StageModule& module_;
  const ProcessGroupMesh& mesh_;
  bool in_shards_;
  std::vector<Known> all_;  // of all stages, in the model's order
  std::vector<Held> routers_;
  std::vector<nn::ExpertsImpl*> experts_of_model_;
  nn::RouterChoices choices_;
  // int64: tokens of each expert of the held routers, one router after the other, and then the choices that no expert
  // has computed; of all ranks.
  torch::Tensor counted_;
  bool is_synced_ = false;  // the counts are of gradients that wait for a step
};

}  // namespace gantry
