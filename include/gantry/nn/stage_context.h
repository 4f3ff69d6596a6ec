// What a forward knows of its stage, and how the stage's layers run: one after the other, each a sequence of named
// parts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/nn/attention_masks.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/key_value_cache.h"

namespace gantry {

// What of a stage's activations the backward computes again: nothing, attention's core, all parts of a layer one by
// one, or whole layers.
enum class Recomputation { kNone, kSelective, kParts, kFull };

// A part of a layer: "attention", "mlp". What lies between two parts is the state, named tensors; a part gives the
// entries that it changes, an undefined one where later parts need it no more, and the others stay as they are. A part
// reads nothing else that requires a gradient but parameters, and nothing that changes until the backward: the graph
// may be cut before and after it. It holds what it needs by value, by module or by its stage.
struct LayerPart {
  using Run = std::function<TensorDict(const TensorDict& state)>;
  LayerPart(std::string name, Run run) : name(std::move(name)), run(std::move(run)) {}
  // Of layers whose state is one tensor.
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

// One forward of one stage knows it; it lives until the backward of what run_layers recomputes.
class StageContext : public std::enable_shared_from_this<StageContext> {
 public:
  struct Settings {
    TensorDict batch = {};  // the microbatch
    Recomputation recomputation = Recomputation::kNone;
    std::vector<int> recomputed_layers =
        {};  // the first so many of each stage: one number for all, or one per stage; empty: all
    std::optional<nn::TokenContext> tokens = {};  // of texts that are continued; absent: of the batch
    ProcessGroup* sequence_group = nullptr;       // over which activations are sequence shards; not owned, null: whole
    std::vector<int> lists = {};                  // layers of each repeated list; empty: one list
    // Of a sequence that ranks share, which part the microbatch is; null: all of it.
    std::shared_ptr<const nn::SequencePart> sequence = {};
    bool vocabulary_apart = false;  // see vocabulary_apart()
  };
  // `layers`: the stage's, of all lists one after the other.
  StageContext(int stage, int num_stages, LayerRange layers, Settings settings);
  // Of a forward outside of a boosted model, whose one stage has all layers.
  static std::shared_ptr<const StageContext> whole(std::vector<int> lists, TensorDict batch);
  static std::shared_ptr<const StageContext> whole(std::size_t layers, TensorDict batch);

  int stage() const { return stage_; }
  int num_stages() const { return num_stages_; }
  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ == num_stages_ - 1; }
  LayerRange layer_range() const { return layers_; }
  // This stage's layers of a repeated list, counted within it. Lists are numbered as StageLayout has them.
  LayerRange layer_range(int list) const;
  std::vector<int> layers(int list = 0) const;
  // True on the one stage that has the list's first layer, or its last one.
  bool begins(int list) const;
  bool ends(int list) const;

  // Runs this stage's layers of a list one after the other, part by part, recomputed in the backward where the
  // configuration says so. It gives the state behind the last one.
  using PartsOf = std::function<LayerParts(int index)>;
  TensorDict run_layers(TensorDict state, const PartsOf& parts_of, int list = 0) const;
  // The same with a state of one tensor.
  torch::Tensor run_layers(const torch::Tensor& hidden, const PartsOf& parts_of) const;
  // The same of layers that are one part each: hidden = layer(index, hidden).
  using Layer = std::function<torch::Tensor(int index, const torch::Tensor& hidden)>;
  torch::Tensor run_layers(const torch::Tensor& hidden, const Layer& layer) const;

  // How a layer of this stage, counted over all lists, is recomputed.
  Recomputation recomputation(int layer) const;

  // What layers are told of a stream's tokens, by the batch's entries [samples, tokens] with this prefix: which of them
  // count (attention_mask), their documents (document_ids) and positions (position_ids; without them they count from 0
  // in each document). Where texts are continued: their positions and the cache. Where ranks share the sequence: of
  // this rank's tokens, with their true positions.
  nn::TokenContext tokens(const std::string& prefix = "") const;

  // The microbatch's own tensors, where this rank has them (attention masks, ...).
  const TensorDict& batch() const { return settings_.batch; }
  ProcessGroup* sequence_group() const { return settings_.sequence_group; }
  const std::shared_ptr<const nn::SequencePart>& sequence() const { return settings_.sequence; }
  // True where embedding and head are computed outside of the stages: the first one is given the rows of its tokens as
  // `embedded`, before anything is done with them, and the last one gives what its head would read as `hidden`.
  bool vocabulary_apart() const { return settings_.vocabulary_apart; }
  // What attention makes of the tokens' masks, once for all layers.
  nn::AttentionMasks& masks() const { return masks_; }

  // gantry::add_loss of nn/forward.h.
  void add_loss(const std::string& name, const torch::Tensor& loss,
                const std::optional<Layout>& of = std::nullopt) const {
    gantry::add_loss(name, loss, of);
  }

 private:
  TensorDict run_layer(const LayerParts& parts, const TensorDict& state, Recomputation how) const;
  int first_of(int list) const;  // the list's first layer, counted over all lists

  int stage_;
  int num_stages_;
  LayerRange layers_;
  Settings settings_;
  mutable nn::AttentionMasks masks_;
};

}  // namespace gantry
