#include "gantry/models/encoder_decoder.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

torch::Tensor decoder_tokens(const TensorDict& batch, std::int64_t start, std::int64_t padding) {
  if (const torch::Tensor given = batch.get("decoder_input_ids"); given.defined()) return given;
  const torch::Tensor& labels = batch.at("labels");
  if (labels.dim() != 2)
    throw InputError({"labels", "the tensor is " + describe(labels), "[samples, tokens] for the decoder",
                      "pass labels or decoder_input_ids"});
  const torch::Tensor first = torch::full_like(labels.narrow(1, 0, 1), start);
  const torch::Tensor rest = labels.narrow(1, 0, labels.size(1) - 1);
  return torch::cat({first, rest.masked_fill(rest == -100, padding)}, 1);
}

void refuse_places(const TensorDict& batch, const std::string& model) {
  for (const char* name : {"position_ids", "document_ids", "decoder_position_ids", "decoder_document_ids"})
    if (batch.contains(name))
      throw InputError({"batch", fmt::format("it contains {}, which {} does not use", name, model),
                        "one sequence per sample", "remove the entry"});
}

torch::Tensor dropped_columns(const nn::Dropout& dropout, const torch::Tensor& wide, const nn::Linear& up) {
  if (!dropout->is_training() || dropout->p() == 0) return wide;
  const ShardSpec& held = up->weight_placement();
  const bool knows_place = held.sharded();
  const std::int64_t first = knows_place ? held.ranges(up->group()->rank()).front().begin : 0;
  const RandomContext context = random_context();
  const std::vector<std::int64_t> offset{context.first_sample, 0, first},
      global{0, wide.size(1), up->options.out_features()};
  if (const auto& stage = forward_now().stage; stage && stage->sequence())
    return wide * nn::dropout_mask_of_part(wide, dropout->p(), dropout->global_name(), context, offset, global, 1,
                                           *stage->sequence());
  return wide * dropout_mask(wide, dropout->p(), dropout->global_name(), context, offset, global);
}

}  // namespace gantry::models
