// Collects the router logits of a batch for `gantry forward`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/router.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::cli {

class RouterOutputs : public nn::OutputObserver {
 public:
  // `model`: the full model before it is split. The reference is not kept.
  explicit RouterOutputs(const torch::nn::Module& model);

  bool empty() const { return routers_.empty(); }
  // Returns "router_logits.3" [samples * tokens, experts] of each layer, on all ranks. Collective over the mesh.
  // `tokens`: tokens per sample. `in_shards`: sequence parallelism, each tp rank has a part of every sequence. `parts`:
  // the parts of a sequence on the cp ranks; null: no context parallelism.
  TensorDict gather(const ProcessGroupMesh& mesh, std::int64_t samples, std::int64_t tokens, bool in_shards,
                    const SequenceParts* parts) const;
  // Returns load_balancing_loss_func of transformers for the result of gather(): one loss over all layers, of the
  // tokens that `mask` [samples, tokens] selects (undefined: all tokens).
  torch::Tensor balancing_loss(const TensorDict& logits, const torch::Tensor& mask) const;

  void begin(std::int64_t first, std::int64_t samples) override;
  void end() override {}
  void module_output(const torch::nn::Module& module, const torch::Tensor& output) override;
  void layer_output(int, const torch::Tensor&) override {}
  void model_output(const std::string&, const torch::Tensor&) override {}

 private:
  struct Router {
    const torch::nn::Module* module = nullptr;  // only compared, never dereferenced
    std::int64_t experts = 1, used = 1;
    std::map<std::int64_t, torch::Tensor> logits;  // by the first sample of the microbatch
  };

  std::map<std::int64_t, Router> routers_;  // by layer
  std::int64_t first_ = 0;
};

}  // namespace gantry::cli
