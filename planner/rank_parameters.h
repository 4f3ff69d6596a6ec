// How many parameters a rank holds, by the splits that the decoder's policy states (policies/decoder).
#pragma once

#include <vector>

#include "gantry/planner/layout.h"

namespace gantry::planner {

struct HeldParameters {
  double dense = 0;    // elements
  double experts = 0;  // of experts, whose replicas are other ranks

  HeldParameters& operator+=(const HeldParameters& more);
};

// Of the rank that holds most of each.
struct ModelParameters {
  std::vector<HeldParameters> layers;
  HeldParameters first, last;  // embeddings; last norm and head, a tied one's too
  double tied = 0;             // of `last`, elements that `first` has too
};
ModelParameters held_parameters(const models::DecoderSpec& spec, int tensor, int expert);

}  // namespace gantry::planner
