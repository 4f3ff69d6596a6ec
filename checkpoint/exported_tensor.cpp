#include "gantry/checkpoint/exported_tensor.h"

#include <algorithm>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr const char* kAverages = "optimizer.average/";

}  // namespace

void require_averages(const std::string& folder, const Manifest& manifest) {
  if (std::ranges::any_of(manifest.tensors, [](const auto& tensor) { return tensor.first.starts_with(kAverages); }))
    return;
  throw CheckpointError({folder, "the checkpoint has no averages of the weights",
                         "a checkpoint of a run with train.ema", "export without --ema, or set train.ema in the run"});
}

const ManifestTensor& exported_tensor(const std::string& folder, const Manifest& manifest, const std::string& name,
                                      bool average) {
  auto found = average ? manifest.tensors.find(kAverages + name) : manifest.tensors.end();
  if (found == manifest.tensors.end()) found = manifest.tensors.find("model/" + name);
  if (found == manifest.tensors.end())
    throw CheckpointError({folder, "the checkpoint has no parameter '" + name + "'",
                           "a family whose tensor_names lists each parameter once, a tied one by its first name",
                           "list the names with gantry::models::names_of_parameters"});
  return found->second;
}

}  // namespace gantry
