#include "gantry/tensors/batch.h"

#include <algorithm>

#include "gantry/core/error.h"

namespace gantry {

TensorDict samples_first(TensorDict tensors) {
  const torch::Tensor ids = tensors.get("input_ids"), positions = tensors.get("position_ids");
  if (!ids.defined() || !positions.defined() || ids.dim() != 2 || positions.dim() != 3) return tensors;
  if (positions.size(0) == 3 && positions.size(1) == ids.size(0) && positions.size(2) == ids.size(1))
    tensors.set("position_ids", positions.permute({1, 2, 0}).contiguous());
  return tensors;
}

Batch make_batch(TensorDict tensors) {
  Batch batch;
  tensors = samples_first(std::move(tensors));
  std::string first;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.dim() == 0)
      throw InputError({"batch entry '" + name + "'", "the entry is " + describe(tensor),
                        "a tensor with the samples along dim 0", ""});
    if (first.empty()) {
      first = name;
      batch.samples = tensor.size(0);
    } else if (tensor.size(0) != batch.samples) {
      throw InputError({"batch",
                        "entries '" + first + "' and '" + name + "' have " + std::to_string(batch.samples) + " and " +
                            std::to_string(tensor.size(0)) + " samples along dim 0",
                        "the same number", "check the code that builds the batch"});
    }
  }
  batch.tensors = std::move(tensors);
  return batch;
}

std::vector<std::pair<std::int64_t, std::int64_t>> split_evenly(std::int64_t samples, std::int64_t parts) {
  parts = std::min(parts, samples);
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
  std::int64_t begin = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t end = begin + samples / parts + (part < samples % parts ? 1 : 0);
    pieces.emplace_back(begin, end);
    begin = end;
  }
  return pieces;
}

Batch slice(const Batch& batch, std::int64_t begin, std::int64_t end) {
  Batch part = batch;
  part.samples = end - begin;
  part.first_sample += begin;
  for (auto* entries : {&part.tensors, &part.full})
    for (auto& [name, tensor] : *entries) tensor = tensor.narrow(0, begin, end - begin);
  return part;
}

Batch replica_part(const Batch& full, int replicas, int replica) {
  const auto pieces = split_evenly(full.samples, replicas);
  const auto number = static_cast<std::size_t>(replica);
  const auto [begin, end] = number < pieces.size() ? pieces[number] : std::pair(full.samples, full.samples);
  Batch part = slice(full, begin, end);
  part.global_samples = full.samples;
  return part;
}

}  // namespace gantry
