#include "gantry/cli/engine/router_outputs.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

// Returns the first number in a path: 3 for "layers.3.mlp.gate".
std::int64_t layer_of(const std::string& path) {
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) return std::stoll(part);
    begin = end + 1;
  }
  return 0;
}

torch::Tensor gathered(ProcessGroup& group, const torch::Tensor& part, int dim) {
  return all_gather_along(group, part, dim, all_gather_numbers(group, part.size(dim)));
}

// Returns the rank of the group whose `is_here` is true.
int holder(ProcessGroup& group, bool is_here) {
  const auto all = all_gather_numbers(group, is_here ? 1 : 0);
  return static_cast<int>(std::find(all.begin(), all.end(), 1) - all.begin());
}

}  // namespace

RouterOutputs::RouterOutputs(const torch::nn::Module& model) {
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (const auto* router = dynamic_cast<const nn::RouterImpl*>(item.value().get()))
      routers_[layer_of(item.key())] = {router, router->options.experts, router->options.used, {}};
}

void RouterOutputs::begin(std::int64_t first, std::int64_t) { first_ = first; }

void RouterOutputs::module_output(const torch::nn::Module& module, const torch::Tensor& output) {
  for (auto& [layer, router] : routers_)
    if (router.module == &module) router.logits[first_] = output.detach().to(torch::kCPU);
}

TensorDict RouterOutputs::gather(const ProcessGroupMesh& mesh, std::int64_t samples, std::int64_t tokens,
                                 bool in_shards, const SequenceParts* parts) const {
  TensorDict all;
  for (const auto& [layer, router] : routers_) {
    const bool is_here = !router.logits.empty();
    const int owner = holder(mesh[axis::kPipeline], is_here);
    torch::Tensor logits = torch::empty({samples, tokens, router.experts});
    if (is_here) {
      std::vector<torch::Tensor> microbatches;
      for (const auto& [first, part] : router.logits) microbatches.push_back(part.to(torch::kFloat32));
      logits = torch::cat(microbatches, 0);
      if (in_shards) logits = gathered(mesh[axis::kTensor], logits, 1);
      if (parts) logits = parts->join(logits, tokens);
      logits = gathered(mesh[axis::kData], logits, 0).contiguous();
    }
    mesh[axis::kPipeline].broadcast(logits, owner).wait();
    all.set(fmt::format("router_logits.{}", layer), logits.view({-1, router.experts}));
  }
  return all;
}

torch::Tensor RouterOutputs::balancing_loss(const TensorDict& logits, const torch::Tensor& mask) const {
  torch::Tensor choices, probabilities, rows = torch::zeros({}, torch::kFloat64);
  for (const auto& [name, of_layer] : logits) {
    const torch::Tensor scores = of_layer.to(torch::kFloat64).softmax(-1);
    const torch::Tensor counted =
        mask.defined() ? mask.reshape({-1, 1}).to(torch::kFloat64) : torch::ones({scores.size(0), 1}, torch::kFloat64);
    const torch::Tensor ids = std::get<1>(scores.topk(routers_.begin()->second.used, -1));
    const torch::Tensor chosen = (torch::zeros_like(scores).scatter(-1, ids, 1) * counted).sum(0);
    const torch::Tensor mass = (scores * counted).sum(0);
    choices = choices.defined() ? choices + chosen : chosen;
    probabilities = probabilities.defined() ? probabilities + mass : mass;
    rows = rows + counted.sum();
  }
  return (choices * probabilities).sum() * static_cast<double>(choices.size(0)) / (rows * rows);
}

}  // namespace gantry::cli
