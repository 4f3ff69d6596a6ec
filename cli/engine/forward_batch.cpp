#include "gantry/cli/engine/forward_batch.h"

#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/batch_entries.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

// Adds labels of tokens and positions that are missing, with -100, which the loss ignores. A classification head has no
// loss without labels.
void fill_labels(TensorDict& batch, const torch::Tensor& first, const std::string& task) {
  const torch::Tensor of_samples = torch::full({first.size(0)}, -100, torch::kInt64);
  for (const char* name : {"start_positions", "end_positions"})
    if (task == "spans" && !batch.contains(name)) batch.set(name, of_samples);
  if ((task == "tokens" || task == "pairs") && !batch.contains("labels"))
    batch.set("labels", torch::full_like(task == "pairs" ? batch.at("decoder_input_ids") : first, -100));
}

}  // namespace

TensorDict read_batch(const std::string& path, const models::ModelFamily& family, const std::string& task) {
  TensorDict batch = read_safetensors(path);
  models::check_batch_entries(batch, family, task, path);
  for (auto& [name, tensor] : batch)
    if (!tensor.is_floating_point()) tensor = tensor.to(torch::kInt64);
  fill_labels(batch, batch.at(family.inputs.front()), task);
  return batch;
}

}  // namespace gantry::cli
