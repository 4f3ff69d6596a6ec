#include "gantry/nn/mixers/chunks.h"

#include <limits>

#include "gantry/nn/mixers/documents.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

torch::ScalarType wide_type(const torch::Tensor& tensor) {
  return at::promote_types(tensor.scalar_type(), torch::kFloat32);
}

torch::Tensor unit_heads(const torch::Tensor& heads) {
  const torch::Tensor wide = heads.to(wide_type(heads));
  return wide * torch::rsqrt(wide.square().sum(-1, /*keepdim=*/true) + 1e-6);
}

torch::Tensor Chunks::split(const torch::Tensor& of_tokens) const {
  torch::Tensor wide = of_tokens.to(wide_type(of_tokens));
  if (const std::int64_t padding = count() * size - tokens; padding > 0) {
    std::vector<std::int64_t> pad(2 * (wide.dim() - 1), 0);
    pad.back() = padding;
    wide = torch::constant_pad_nd(wide, pad);
  }
  return wide.unflatten(1, {count(), size}).transpose(2, 3).contiguous();
}

torch::Tensor Chunks::join(const torch::Tensor& of_chunks, torch::ScalarType type) const {
  return of_chunks.to(type).transpose(2, 3).flatten(1, 2).narrow(1, 0, tokens);
}

ChunkDocuments chunk_documents(const torch::Tensor& documents, const Chunks& chunks) {
  if (!documents.defined()) return {};
  torch::Tensor numbers = document_numbers(documents);
  const std::int64_t padding = chunks.count() * chunks.size - chunks.tokens;
  const torch::Tensor last = numbers.narrow(1, chunks.tokens - 1, 1).expand({-1, padding});
  numbers = torch::cat({numbers, last}, 1).view({numbers.size(0), chunks.count(), 1, chunks.size});
  const torch::Tensor ends = numbers.narrow(-1, chunks.size - 1, 1);
  const torch::Tensor before = torch::constant_pad_nd(ends.narrow(1, 0, chunks.count() - 1), {0, 0, 0, 0, 1, 0});
  return {numbers.unsqueeze(-1).eq(numbers.unsqueeze(-2)), numbers.eq(before), numbers.eq(ends),
          ends.eq(before).squeeze(-1)};
}

torch::Tensor masked(const torch::Tensor& values, const torch::Tensor& mask, int further) {
  if (!mask.defined()) return values;
  torch::Tensor shaped = mask;
  for (int i = 0; i < further; ++i) shaped = shaped.unsqueeze(-1);
  return values * shaped;
}

ChunkDecays chunk_decays(const torch::Tensor& logarithms, const ChunkDocuments& documents) {
  const torch::Tensor sums = logarithms.cumsum(-1), end = sums.narrow(-1, sums.size(-1) - 1, 1);
  const std::int64_t size = sums.size(-1);
  const torch::Tensor later = torch::ones({size, size}, sums.options().dtype(torch::kBool)).triu(1);
  const torch::Tensor within = torch::exp(
      (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(later, -std::numeric_limits<double>::infinity()));
  return {masked(within, documents.same), masked(torch::exp(sums), documents.from_start),
          masked(torch::exp(end - sums), documents.to_end), masked(torch::exp(end.squeeze(-1)), documents.whole)};
}

}  // namespace gantry::nn
