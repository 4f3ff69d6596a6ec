// How many parameters a rank holds, by the splits that the decoder's policy states (policies/decoder).
#pragma once

#include <vector>

#include "gantry/planner/layout.h"

namespace gantry::planner {

struct HeldParameters {
  double dense = 0;                               // elements
  double experts = 0;                             // of experts, whose replicas are other ranks
  double trained_dense = 0, trained_experts = 0;  // of them those with gradients and optimizer states

  void add_dense(double elements, bool is_trained);
  void add_experts(double elements, bool is_trained);
  HeldParameters& operator+=(const HeldParameters& more);
};

// Of the rank that holds most of each.
struct ModelParameters {
  std::vector<HeldParameters> layers;
  HeldParameters first, last;  // embeddings; last norm and head, a tied one's too
  double tied = 0;             // of `last`, elements that `first` has too
  double trained_tied = 0;     // of them those that are trained
};
// With the adapters of what is trained.
ModelParameters held_parameters(const models::DecoderSpec& spec, int tensor, int expert,
                                const TrainedPart& trained = {});

}  // namespace gantry::planner
