// The stage of a forward, and the execution of its layers: one after the other, each as a sequence of named parts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gantry/nn/attention_masks.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/schedule/pipeline_stage_manager.h"

namespace gantry {

// Which activations of a stage are recomputed in the backward: none, the attention core, all parts of a layer
// separately, or full layers.
enum class Recomputation { kNone, kSelective, kParts, kFull };

// A part of a layer: "attention", "mlp". It maps a state, a set of named tensors, to the entries that change; the other
// entries are kept. Return an undefined entry if no later part needs it. The autograd graph may be split before and
// after a part. A part must therefore not read other tensors that require gradients, except parameters, or values that
// change before the backward. It must hold its inputs by value, or through a module or the stage.
struct LayerPart {
  using Run = std::function<TensorDict(const TensorDict& state)>;
  LayerPart(std::string name, Run run) : name(std::move(name)), run(std::move(run)) {}
  // For layers whose state is a single tensor.
  template <class F>
  requires std::is_invocable_r_v<torch::Tensor, F, const torch::Tensor&> LayerPart(std::string name, F change)
      : LayerPart(std::move(name), Run([change = std::move(change)](const TensorDict& state) {
                    const auto& [entry, tensor] = *state.begin();
                    return TensorDict{{entry, change(tensor)}};
                  })) {}

  std::string name;
  Run run;
};
using LayerParts = std::vector<LayerPart>;

// The context of one forward of one stage. It exists until the backward of the layers that run_layers() recomputes.
class StageContext : public std::enable_shared_from_this<StageContext> {
 public:
  struct Settings {
    TensorDict batch = {};  // the microbatch
    Recomputation recomputation = Recomputation::kNone;
    // Number of recomputed layers, from the first one of each stage: one number for all stages, or one per stage;
    // empty: all.
    std::vector<int> recomputed_layers = {};
    std::optional<nn::TokenContext> tokens = {};  // for generation; not set: from the batch
    // Group that shards the sequence of activations; not owned; null: not sharded.
    ProcessGroup* sequence_group = nullptr;
    ProcessGroup* tensor_group = nullptr;  // the tensor-parallel ranks of the layers; not owned; null: one rank
    std::vector<int> lists = {};           // number of layers of each repeated list; empty: one list
    // With context parallelism: the part of the sequence that the microbatch is; null: the full sequence.
    std::shared_ptr<const nn::SequencePart> sequence = {};
    bool vocabulary_apart = false;  // see vocabulary_apart()
  };
  // `layers`: those of the stage, counted over all lists.
  StageContext(int stage, int num_stages, LayerRange layers, Settings settings);
  // The context of a forward outside of a boosted model: one stage with all layers.
  static std::shared_ptr<const StageContext> full(std::vector<int> lists, TensorDict batch);
  static std::shared_ptr<const StageContext> full(std::size_t layers, TensorDict batch);

  int stage() const { return stage_; }
  int num_stages() const { return num_stages_; }
  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ == num_stages_ - 1; }
  LayerRange layer_range() const { return layers_; }
  // The stage's layers of a repeated list, counted within this list. Lists have the order of StageLayout.
  LayerRange layer_range(int list) const;
  std::vector<int> layers(int list = 0) const;
  // True on the stage that has the first layer of the list, or the last one.
  bool begins(int list) const;
  bool ends(int list) const;

  // Runs this stage's layers of a list one after the other, part by part, with recomputation in the backward if
  // configured. Returns the state after the last layer.
  using PartsOf = std::function<LayerParts(int index)>;
  TensorDict run_layers(TensorDict state, const PartsOf& parts_of, int list = 0) const;
  // The same for a state with a single tensor.
  torch::Tensor run_layers(const torch::Tensor& hidden, const PartsOf& parts_of) const;
  // The same for layers that consist of one part: hidden = layer(index, hidden).
  using Layer = std::function<torch::Tensor(int index, const torch::Tensor& hidden)>;
  torch::Tensor run_layers(const torch::Tensor& hidden, const Layer& layer) const;

  // Whether and how a layer of this stage, counted over all lists, is recomputed.
  Recomputation recomputation(int layer) const;

  // Returns information about the tokens of a sequence, from the batch entries [samples, tokens] with this prefix:
  // attention_mask, document_ids and position_ids. Without position_ids, positions start from 0 in each document. In
  // generation it has their positions and the cache. With context parallelism it describes this rank's tokens, with
  // their positions in the full sequence.
  nn::TokenContext tokens(const std::string& prefix = "") const;

  // The microbatch's tensors that this rank has (attention masks, ...).
  const TensorDict& batch() const { return settings_.batch; }
  ProcessGroup* sequence_group() const { return settings_.sequence_group; }
  ProcessGroup* tensor_group() const { return settings_.tensor_group; }
  const std::shared_ptr<const nn::SequencePart>& sequence() const { return settings_.sequence; }
  // True if embedding and head are computed outside of the stages. The first stage then receives the embeddings of its
  // tokens as `embedded`, and the last one returns the input of its head as `hidden`.
  bool vocabulary_apart() const { return settings_.vocabulary_apart; }
  // The attention masks of this forward, which all layers share.
  nn::AttentionMasks& masks() const { return masks_; }

  // See nn/added_loss.h.
  void add_loss(const std::string& name, const torch::Tensor& loss,
                const std::optional<Layout>& of = std::nullopt) const {
    gantry::add_loss(name, loss, of);
  }
  void add_parameter_loss(const std::string& name, const torch::Tensor& parameter,
                          const std::function<torch::Tensor(const torch::Tensor& part)>& term) const {
    gantry::add_parameter_loss(name, parameter, term);
  }

 private:
  TensorDict run_layer(const LayerParts& parts, const TensorDict& state, Recomputation how) const;
  int first_of(int list) const;  // first layer of the list, counted over all lists

  int stage_;
  int num_stages_;
  LayerRange layers_;
  Settings settings_;
  mutable nn::AttentionMasks masks_;
};

}  // namespace gantry
