#include "gantry/models/laurel.h"

#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

Laurel::Laurel(torch::nn::Module& root, std::int64_t rank, const NormSpec& norm, const DecoderNames& names,
               std::int64_t hidden)
    : left_(linear_at(root, names.laurel + ".linear_left", hidden, rank, false)),
      right_(linear_at(root, names.laurel + ".linear_right", rank, hidden, false)),
      norm_(root, names.laurel + ".post_laurel_norm", norm, hidden) {}

torch::Tensor Laurel::operator()(const torch::Tensor& input) { return input + norm_(right_(left_(input))); }

}  // namespace gantry::models
