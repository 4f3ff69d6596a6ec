#include "gantry/nn/token_entries.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr const char* kRemedy = "add document_ids, the number of the document of each token";

// Positions that decrease between two tokens that are not padding.
void refuse_new_beginnings(const torch::Tensor& given, const torch::Tensor& mask, const std::string& name) {
  const torch::Tensor positions = on_host(given);
  if (!positions.defined() || positions.is_meta() || positions.dim() != 2 || positions.size(1) < 2) return;
  torch::Tensor decreases = positions.slice(1, 1) < positions.slice(1, 0, -1);
  if (const torch::Tensor keep = mask.defined() ? on_host(mask) : torch::Tensor(); keep.defined() && !keep.is_meta()) {
    const torch::Tensor kept = keep != 0;
    decreases = decreases & kept.slice(1, 1) & kept.slice(1, 0, -1);
  }
  const torch::Tensor found = decreases.nonzero();
  if (found.size(0) == 0) return;
  throw InputError({name,
                    fmt::format("the positions restart at token {} of a sample, but the batch has no document_ids",
                                number_of(found[0][1]) + 1),
                    "ascending positions, or document_ids for packed documents", kRemedy});
}

// Attention reads the last columns of a mask that is wider than the tokens.
void require_width_of_tokens(const TensorDict& batch, const std::string& prefix) {
  const torch::Tensor ids = batch.get(prefix + "input_ids");
  if (!ids.defined() || ids.dim() == 0) return;
  for (const char* name : {"attention_mask", "document_ids"}) {
    const torch::Tensor entry = batch.get(prefix + name);
    if (!entry.defined() || (entry.dim() == ids.dim() && entry.size(-1) == ids.size(-1))) continue;
    throw InputError({prefix + name,
                      fmt::format("the entry is {}, but the tokens are {}", describe(entry), describe(ids)),
                      "a value for each token", "give it the shape of the tokens"});
  }
}

}  // namespace

void check_token_entries(const TensorDict& batch, const std::string& prefix) {
  require_width_of_tokens(batch, prefix);
  if (batch.contains(prefix + "document_ids")) return;
  for (const char* other : {"segment_ids", "seq_idx"})
    if (batch.contains(prefix + other))
      throw InputError({prefix + other, "the model does not read this entry", "document_ids for packed documents",
                        "rename it to document_ids, or remove it"});
  if (const torch::Tensor positions = batch.get(prefix + "position_ids"); positions.defined())
    refuse_new_beginnings(positions, batch.get(prefix + "attention_mask"), prefix + "position_ids");
}

void check_mask_values(const torch::Tensor& mask, const std::string& name) {
  const torch::Tensor other = mask.ne(0).logical_and(mask.ne(1));
  if (number_of(other.any()) == 0) return;
  throw InputError(
      {name, fmt::format("the mask has the value {}", number_of(mask.masked_select(other)[0])),
       "1 for tokens that are attended to, and 0 for padding",
       "give the numbers of packed documents as document_ids, and convert an additive mask by (mask == 0)"});
}

}  // namespace gantry::nn
