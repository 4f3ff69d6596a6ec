#include "gantry/cli/engine/sample.h"

#include <algorithm>

namespace gantry::cli {
namespace {

// The tokens as one batch of a fixed length, so that stages agree on its shape once; later places are never looked at.
Batch padded_batch(const std::vector<std::int64_t>& tokens, std::int64_t window, const ProcessGroupMesh& mesh) {
  torch::Tensor ids = torch::zeros({1, window}, torch::kInt64);
  std::copy(tokens.begin(), tokens.end(), ids.data_ptr<std::int64_t>());
  Batch batch = make_batch({{"input_ids", ids}, {"labels", torch::full_like(ids, -100)}});
  batch.first_sample = mesh.coordinate("dp");
  batch.global_samples = mesh.size("dp");
  return batch;
}

}  // namespace

std::string sample_bytes(Booster& booster, Boosted& boosted, HybridParallelPlugin& plugin, const std::string& prompt,
                         std::int64_t window, std::int64_t length) {
  std::string text = prompt;
  const int last = plugin.stages().rank_of(plugin.stages().num_stages() - 1);
  while (static_cast<std::int64_t>(text.size()) < length) {
    const std::size_t seen = std::min<std::size_t>(text.size(), window);
    std::vector<std::int64_t> tokens;
    for (const char c : text.substr(text.size() - seen)) tokens.push_back(static_cast<unsigned char>(c));
    const auto result = booster.execute_pipeline(padded_batch(tokens, window, plugin.mesh()), boosted,
                                                 {.return_loss = false, .return_outputs = true, .forward_only = true});
    torch::Tensor next = torch::zeros({1}, torch::kInt64);
    if (plugin.stages().holds_last())
      next[0] = result.outputs.at("logits")[0][static_cast<std::int64_t>(seen) - 1].argmax();
    plugin.mesh()["pp"].broadcast(next, last).wait();
    text.push_back(static_cast<char>(next.item<std::int64_t>()));
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c != '\n' && (c < 32 || c > 126); }, '.');
  return text;
}

}  // namespace gantry::cli
