// The split of a model over ranks, as one value: of its modules over tp, of its layers over stages, and of its
// sequences over the ranks of parallel.context. It also has the model's use of batches and its way to generate text.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/core/context_method.h"
#include "gantry/nn/shard_style.h"
#include "gantry/policies/token_streams.h"
#include "gantry/schedule/layer_work.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// Applies a style to all modules whose path matches (`*` matches any text within one part of the path). FullSequence{}
// and SequenceParallel{} can also name a parameter by its path.
struct ShardRule {
  std::string pattern;
  ShardStyle style;
};
using ShardPlan = std::vector<ShardRule>;

// A list of layers that is partitioned over stages. `with_first`: paths that are held by the stage of its first layer.
struct RepeatedList {
  std::string path;
  std::vector<std::string> with_first = {};
};

// One list of layers, "h", or several that run one after the other and have their own layers and lengths, such as those
// of an encoder and a decoder.
class RepeatedLists {
 public:
  RepeatedLists() = default;
  RepeatedLists(const char* path) : RepeatedLists(std::string(path)) {}         // NOLINT: allows a path as a list
  RepeatedLists(std::string path) { lists_.push_back({std::move(path), {}}); }  // NOLINT
  RepeatedLists(std::initializer_list<RepeatedList> lists) : lists_(lists) {}

  const std::vector<RepeatedList>& lists() const { return lists_; }

 private:
  std::vector<RepeatedList> lists_;
};

// The module paths that the first stage holds, the layers, and the module paths that the last stage holds. Parameters
// and buffers of the root module are listed by their paths.
struct StageLayout {
  std::vector<std::string> first;
  RepeatedLists repeated;
  std::vector<std::string> last;
};

// An output of the last stage whose last dimension is sharded over tp, like the output of a column-sharded Linear.
struct SplitOutput {
  std::string output;  // "logits"
  std::string module;  // "lm_head"
};

// The paths of the two modules of a model whose weights have one row per token of the vocabulary: an nn::Embedding, and
// the nn::Linear that computes the output `logits` [samples, tokens, vocabulary]. The logits become soft_cap *
// tanh(scale * logits / soft_cap). The model's stage_forward must skip both modules if StageContext::vocabulary_apart()
// is true.
struct VocabularyModules {
  std::string embedding, head;
  std::string output = "logits";
  double scale = 1;
  double soft_cap = 0;  // 0: none
};

// Whether and how a model can generate text (gantry::generate).
struct Continuation {
  bool is_possible = true;  // "logits" [samples, tokens, vocabulary] predict the next token
  // True: forward() uses StageContext::tokens() and the key-value cache. False: the full sequence is recomputed for
  // each token.
  bool is_cached = false;
  std::int64_t positions = 0;  // maximum number of tokens of a sequence; 0: unlimited
  // For encoder-decoder models: the first token of decoder_input_ids. The prompts are input_ids and attention_mask of
  // the encoder. Not set: the prompts themselves are continued.
  std::optional<std::int64_t> start_token = {};
  // For models that read images: completes a batch of prompts, input_ids and attention_mask padded on the left, with
  // the entries of their images, which may have the order of Hugging Face's processors. Returns the batch with the
  // samples first and with all entries that follow from tokens. Null: the model reads no images.
  std::function<TensorDict(TensorDict batch)> with_images = {};
};

// The use of a batch by a model.
struct BatchUse {
  // Returns the number of tokens per sample, or 0 if it is unknown. Sequence parallelism needs it, unless
  // Batch::tokens_per_sample is set. Not set: dimension 1 of input_ids or, without input_ids, of all [samples, tokens]
  // integer tensors if they agree.
  std::function<std::int64_t(const TensorDict& batch)> tokens_per_sample = {};
  // The batch entries that forward() reads through StageContext::batch() on stages between the first and the last.
  // Ranks that hold only such stages read no other entries. "*": any entry. (g++ 12 crashes if a class template returns
  // a value whose default is a list.)
  std::vector<std::string> between = std::vector<std::string>(1, "*");

  std::int64_t tokens_of(const TensorDict& batch) const;  // tokens_per_sample, or its default
};

// Support for context parallelism (parallel.context): forward() uses StageContext::tokens() and
// AttentionOptions::sequence. The functions must not refer to the model.
struct ContextSplit {
  AttentionHeads heads;  // the smallest number of heads of any layer with attention; 0: no layer has attention
  // Returns why the layers do not support this number of ranks of cp together with this number of ranks of tp; empty:
  // they do. Not set: only attention limits the ranks.
  std::function<std::string(int context, int tensor)> objection = {};
  // Returns one stream for each list of layers, for a batch of full sequences, whose entries may be on the meta device.
  // Also called with an empty batch, for the properties that do not depend on it.
  // Not set: there is one causal stream, which consists of all entries [samples, tokens, ...] of a batch.
  std::function<std::vector<TokenStream>(const TensorDict& batch)> streams = {};
  // Returns the batch with the entries that forward() would compute from neighbouring tokens. Not set: there are none.
  std::function<TensorDict(TensorDict batch)> complete = {};
  // All ranks of the context group return the same full outputs, instead of the outputs of their own tokens. One rank
  // then compares them with the labels.
  bool gathers_outputs = false;
};

// Every field has a default: a model without shards, stages or further features.
struct ModelSplit {
  // How modules are sharded over tp. Modules without a rule are replicated. With sequence parallelism, modules with
  // parameters need a rule.
  ShardPlan shards = {};
  // The modules of the first stage, the layers, and the modules of the last stage.
  StageLayout stages = {};
  // The costs for `schedule.layers: balanced`: the forward FLOPs per token, or any other unit, of each layer, and in
  // addition of the first and the last stage. Not set: the weights of matrices, without those of embeddings.
  std::optional<LayerWork> work = {};
  // The outputs that stay sharded over tp.
  std::vector<SplitOutput> split_outputs = {};
  // The modules that `parallel.vocabulary: pipeline` shards over the ranks of the stages. Not set: not supported.
  std::optional<VocabularyModules> vocabulary = {};
  // Not set: the model needs full sequences, for the reason `without_context`, which may be empty.
  std::optional<ContextSplit> context = {};
  std::string without_context = {};
  Continuation continuation = {};
  // The key that requests a loss over all layers and samples of a step together, so that a step must have one stage,
  // one replica and one microbatch; otherwise the training step throws. Empty: there is no such loss.
  std::string joint_loss = {};
  // Number of depths of multi-token prediction whose losses the model adds in training (nn/mtp_tokens.h); 0: none. The
  // batch then gets the tokens and labels of these depths, and Forward::mtp_ratios is set.
  int mtp_depths = 0;
  BatchUse batch = {};
};

// The weights of matrices of each layer and of the last stage, without those of embeddings.
LayerWork weights_of_layers(const StageLayout& stages, const torch::nn::Module& model);
// ModelSplit::work, or its default.
LayerWork work_of(const ModelSplit& split, const torch::nn::Module& model);

}  // namespace gantry
