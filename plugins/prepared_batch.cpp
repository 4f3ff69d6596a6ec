#include "gantry/plugins/prepared_batch.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/scalar_type.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/sent_ahead.h"

namespace gantry {

StepCounts agree_on_counts(Batch& batch, RankCounts mine, const Criterion& criterion, const StageModule& module,
                           bool sequence_parallel, const ProcessGroupMesh& mesh) {
  if (batch.tokens_per_sample == 0) batch.tokens_per_sample = module.split().batch.tokens_of(batch.tensors);
  mine.replica = mesh.coordinate(axis::kData);
  mine.samples = batch.samples;
  mine.tokens = batch.tokens_per_sample;
  mine.labels = known_labels(criterion, batch.tensors);
  mine.images = known_images(batch.tensors);
  const StepCounts counts = combine_counts(exchange_counts(mine, mesh), mine.replica);
  if (counts.global_samples == 0)
    throw InputError({"batch", "no replica has samples", "at least one sample",
                      "end the loop when RunStops::out_of_samples() returns true"});
  if (batch.tokens_per_sample == 0) batch.tokens_per_sample = counts.tokens_per_sample;
  if (batch.tokens_per_sample == 0 && sequence_parallel && mesh.size(axis::kTensor) > 1)
    throw InputError(
        {"batch",
         "the number of tokens per sample of " + describe(batch.tensors) +
             " is unknown, but sequence parallelism needs it",
         "input_ids [samples, tokens], or integers of one such shape",
         "set batch.tokens_per_sample, or state BatchUse::tokens_per_sample in " + module.policy().name() + "::split"});
  batch.tokens_per_sample = std::max<std::int64_t>(1, batch.tokens_per_sample);
  if (batch.global_samples == 0) {
    batch.first_sample = counts.first_sample;
    batch.global_samples = counts.global_samples;
  }
  return counts;
}

void check_batch(const Batch& batch) {
  for (const auto& [name, tensor] : batch.tensors) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != batch.samples) {
      throw InputError({"batch entry '" + name + "'", "its shape is " + describe(tensor),
                        fmt::format("{} samples along dim 0, as in Batch::samples", batch.samples),
                        "pass the same number of samples in every entry"});
    }
    if (!number_type_of(tensor.scalar_type()))
      throw InputError({"batch entry '" + name + "'", "the tensor is " + describe(tensor),
                        "one of " + number_type_names(), "cast it to one of these"});
  }
  if (batch.global_samples < batch.first_sample + batch.samples) {
    throw InputError({"batch",
                      fmt::format("samples {} to {} are not in a global batch of {}", batch.first_sample,
                                  batch.first_sample + batch.samples, batch.global_samples),
                      "samples of the global batch", "set global_samples to 0 to determine it automatically"});
  }
}

std::optional<torch::ScalarType> real_type_of(const StageModule& module) {
  std::optional<torch::ScalarType> type;
  const auto kept = float32_parameters(module.module());
  for (const auto& held : module.parameters) {
    if (!held.tensor.is_floating_point() || std::find(kept.begin(), kept.end(), held.placement.name) != kept.end())
      continue;
    if (type && *type != held.tensor.scalar_type()) return std::nullopt;
    type = held.tensor.scalar_type();
  }
  return type;
}

PreparedBatch::PreparedBatch(const Batch& given, torch::Device device, std::optional<torch::ScalarType> real_type) {
  for (const auto& [name, tensor] : given.tensors) tensors.set(name, prepared(given, tensor, device, real_type));
  for (const auto& [name, tensor] : given.full) full.set(name, prepared(given, tensor, device, real_type));
}

torch::Tensor PreparedBatch::prepared(const Batch& given, torch::Tensor entry, torch::Device device,
                                      std::optional<torch::ScalarType> real_type) {
  const torch::Tensor tensor = entry;
  if (entry.defined() && real_type && entry.is_floating_point()) entry = entry.to(*real_type);
  if (!entry.defined() || entry.is_meta() || entry.device() == device) return entry;
  torch::Tensor there = given.ahead ? given.ahead->take(tensor, device) : torch::Tensor();
  there = there.defined() ? there.to(entry.scalar_type()) : to_device(entry, device);
  if (entry.is_cpu()) known_.emplace_back(there, entry);
  return there;
}

}  // namespace gantry
