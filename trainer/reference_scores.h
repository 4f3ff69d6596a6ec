// The scores of a reference model, before the first step of a run with preferences.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/preference_loss.h"

namespace gantry {

class ReferenceCache;

// Fills ReferenceScores with the log-probabilities of all completions of the run's data, and of the held-out data if
// evaluation.path is set, under the reference model: those of train.objective.reference_cache, or computed.
//
// The reference has the weights of train.objective.reference, else those of model.path with the adapters of lora.path,
// else the initial ones. If train.objective.reference is an adapter, the reference is the base of model.path with this
// adapter.
class ReferenceScorer {
 public:
  // Reads the cache. Computes the log-probabilities of a reference that is an adapter, with a model of its own that is
  // released afterwards: therefore create the object before the model of the run is boosted. `built`: Gantry builds
  // the model of the run. Throws ConfigError, for example for an adapter or a cache if the program passes its own
  // model. Collective over the world, with `group` of all its ranks. `config`, `world` and `group` must outlive the
  // object.
  ReferenceScorer(const Config& config, World& world, ProcessGroup& group, bool built, bool has_held_out,
                  std::shared_ptr<ReferenceScores> scores);
  ~ReferenceScorer();

  // Computes the other log-probabilities, with the model of the run. The weights of the reference replace its weights;
  // the caller loads its own ones again. Collective over the world.
  void score(Booster& booster, Boosted& boosted);

 private:
  // The samples of the training data or of the held-out data.
  struct Part {
    SampleSource source;
    std::string digest;      // digest of the samples on rank 0, with a cache
    torch::Tensor stored;    // on rank 0: the log-probabilities in the cache; undefined: none
    std::int64_t rows = 0;   // number of samples; 0: unknown
    bool is_stored = false;  // on all ranks: the cache has the log-probabilities
  };

  void read_cache();
  void score_adapter();
  // Computes the missing rows with a model that has the weights of the reference.
  void compute(Booster& booster, Boosted& boosted);
  void make_rows();
  // Combines the rows of all ranks, and stores the new ones.
  void finish();
  void store();
  std::string description() const;

  const Config& config_;
  World& world_;
  ProcessGroup& group_;
  const std::shared_ptr<ReferenceScores> scores_;
  std::vector<Part> parts_;
  std::unique_ptr<const ReferenceCache> cache_;  // on rank 0, with a cache
  bool is_done_ = false;
};

}  // namespace gantry
