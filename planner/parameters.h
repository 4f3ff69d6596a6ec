// The parameters of a rank: how many it holds, and how many of these are trained.
#pragma once

#include <vector>

#include "gantry/planner/layout.h"

namespace gantry::planner {

// Numbers of elements. Those of quantised weights are converted: elements of the workload's precision with the same
// number of bytes.
struct HeldParameters {
  double dense = 0;
  double experts = 0;                             // parameters of experts, which have other replicas
  double trained_dense = 0, trained_experts = 0;  // the elements with gradients and optimizer states
  double trained_ends = 0;                        // those of trained_dense outside of the repeated layers
  double trained_by_input = 0;                    // those of matrices whose rows are sharded over tensor ranks

  void add_dense(double elements, bool is_trained);
  void add_end(double elements, bool is_trained);  // elements of the embedding, the head or another end
  void add_experts(double elements, bool is_trained);
  // Subtracts the tied elements, which a rank with both ends holds once.
  void remove_tied(const struct ModelParameters& model);
  HeldParameters& operator+=(const HeldParameters& more);
};

// For each parameter, the number of elements on the rank with the largest part.
struct ModelParameters {
  std::vector<HeldParameters> layers;  // all layers of the pipeline
  HeldParameters patches;              // the image encoder before its layers
  HeldParameters features;             // the image encoder after its layers: the last norm and the projector
  HeldParameters first;                // embeddings
  HeldParameters last;                 // the last norm and the head, even if the head is tied
  double tied = 0;                     // elements of `last` that `first` contains as well
  double trained_tied = 0;             // the trained elements of `tied`
};

// Adapters of `trained` are included. The shards are those of models::decoder_shards(). Throws ConfigError if a
// parameter cannot be sharded over that number of ranks.
ModelParameters held_parameters(const models::DecoderSpec& spec, int tensor, int expert,
                                const TrainedPart& trained = {});

}  // namespace gantry::planner
