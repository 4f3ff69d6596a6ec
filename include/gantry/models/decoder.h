// A decoder for one device, built from a DecoderSpec and from layers that a policy can shard. Its parameters have the
// names in the spec.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/decoder_spec.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/nn/rotary.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {
class EmbeddingNoiseImpl;
class GatherSamplesImpl;
class XieluImpl;
}  // namespace gantry::nn

namespace gantry::models {

// The path of the module that adds noise to the embeddings.
inline constexpr const char* kEmbeddingNoise = "embedding_noise";
// The path of the module that gives each rank of tp the image features of its tokens; it has no parameters.
inline constexpr const char* kImageRows = "image_rows";
// The path of the module that gives the head of a classifier all tokens of a sequence; it has no parameters.
inline constexpr const char* kFullSequence = "full_sequence";

// A norm according to a NormSpec; the identity if there is none.
class DecoderNorm {
 public:
  DecoderNorm() = default;
  // Registers the norm below `root` at `path`, if it exists.
  DecoderNorm(torch::nn::Module& root, const std::string& path, const NormSpec& spec, std::int64_t size);
  torch::Tensor operator()(const torch::Tensor& input);

 private:
  nn::RmsNorm rms_{nullptr};
  nn::LayerNorm layer_{nullptr};
};

class AltUp;
class ImageEncoder;
class ExpertsOfLayer;
class Laurel;
class LayerInputGate;
class LayerInputs;
class StreamEnds;
class LatentAttention;
class LayerMixer;

// The state that a part of a layer reads, and its changes so far: layers share keys and values there. Not owned; null:
// the layer has its own keys and values, and no other layer uses them.
struct SharedState {
  const TensorDict* read = nullptr;
  TensorDict* made = nullptr;
};

// One layer with at most two parts, "attention" (or the mixer in its place) and "mlp". If the autograd graph is split
// between parts (nn/layer_watch.h) and experts are on other ranks, "mlp" is replaced by "dispatch", "experts" and
// "combine".
class DecoderLayerImpl : public torch::nn::Module {
 public:
  DecoderLayerImpl(const DecoderSpec& spec, int index);
  // Returns the parts for a state with "hidden" [B, S, H], or [B, S, N * H] with N streams. `sums_routers`: experts add
  // to the sums of models/router_loss.h.
  LayerParts parts(const nn::TokenContext& tokens, bool sums_routers = false);
  // For a layer of multi-token prediction: its input from the embeddings of tokens and the hidden states of the depth
  // before, and the hidden states of its depth from the output of the parts. All [B, S, H].
  torch::Tensor mtp_input(const torch::Tensor& embedded, const torch::Tensor& hidden);
  torch::Tensor mtp_output(const torch::Tensor& hidden) { return mtp_norm_(hidden); }

 private:
  struct Heads {  // each [B, local heads, S, head size]
    torch::Tensor query, key, value;
    nn::HeadRange queries, keys;
    torch::Tensor gate;  // [B, S, local features] before the sigmoid; undefined: none
  };
  void make_attention(const DecoderNames& names, std::int64_t hidden, double output_dropout);
  void make_streams(const DecoderSpec& spec);
  void share_keys(Heads& heads, const SharedState& shared) const;
  void make_mlp(const DecoderNames& names, std::int64_t hidden, double output_dropout);
  // Query, key and value in the order of rows of the projections. Sets the head ranges in `heads` to those that this
  // rank holds.
  std::vector<torch::Tensor> projected(const torch::Tensor& input, Heads& heads);
  Heads project(const torch::Tensor& input);
  Heads turned_heads(const torch::Tensor& input, const nn::TokenContext& tokens, std::int64_t cached);
  torch::Tensor tempered(const torch::Tensor& query, const nn::TokenContext& tokens, std::int64_t cached) const;
  torch::Tensor attention(const torch::Tensor& input, const nn::TokenContext& tokens, const SharedState& shared);
  // By attention or the mixer.
  torch::Tensor mixed(const torch::Tensor& input, const nn::TokenContext& tokens, const SharedState& shared = {});
  torch::Tensor mlp(const torch::Tensor& input);
  LayerParts parts_with_sums(const nn::TokenContext& tokens);
  LayerParts parts_with_norms_behind(const nn::TokenContext& tokens);
  LayerParts parts_in_turn(const nn::TokenContext& tokens);
  LayerParts parts_side_by_side(const nn::TokenContext& tokens);
  LayerParts parts_with_streams(const nn::TokenContext& tokens);
  TensorDict computed_stream(const TensorDict& state, const nn::TokenContext& tokens);
  TensorDict corrected_streams(const TensorDict& state);
  torch::Tensor with_attention(const torch::Tensor& hidden, const nn::TokenContext& tokens,
                               const SharedState& shared = {});
  static torch::Tensor weighted(const torch::Tensor& residual, const torch::Tensor& made,
                                const ResidualFactors& factors);
  torch::Tensor input_of_mlp(const torch::Tensor& hidden);
  torch::Tensor with_mlp(const torch::Tensor& hidden, const torch::Tensor& made);
  TensorDict experts_with_sums(const TensorDict& state, const torch::Tensor& keep);

  const LayerSpec spec_;
  const int index_;
  const std::vector<int> users_of_keys_;  // layers that use the same keys and values, in order; empty: this one alone
  DecoderNorm input_, query_norm_, key_norm_, value_norm_, after_attention_, before_mlp_, after_mlp_;
  nn::SplitRmsNorm wide_query_norm_{nullptr}, wide_key_norm_{nullptr};
  nn::HeadsLayerNorm own_query_norm_{nullptr}, own_key_norm_{nullptr};
  nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, fused_{nullptr}, output_{nullptr};
  nn::Dropout attention_dropout_{nullptr}, output_dropout_{nullptr}, mlp_dropout_{nullptr};
  nn::Sinks sinks_{nullptr};
  std::shared_ptr<ExpertsOfLayer> experts_;  // null: an MLP
  std::shared_ptr<LatentAttention> latent_;  // null: separate or fused projections
  std::shared_ptr<LayerMixer> mixer_;        // null: attention
  std::shared_ptr<AltUp> altup_;             // null: one stream
  std::shared_ptr<Laurel> laurel_;
  std::shared_ptr<LayerInputGate> input_gate_;
  nn::Linear gate_{nullptr}, up_{nullptr}, fused_gate_{nullptr}, down_{nullptr};
  std::shared_ptr<nn::XieluImpl> xielu_;  // null: an activation without parameters
  DecoderNorm mtp_embedding_norm_, mtp_hidden_norm_, mtp_norm_;
  nn::Linear mtp_projection_{nullptr};  // null: no layer of multi-token prediction
  std::optional<nn::Rotary> rotary_;
};
TORCH_MODULE(DecoderLayer);

class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(DecoderSpec description);

  // Runs the full model on input_ids int64 [B, S], with optional attention_mask, position_ids and document_ids [B, S].
  // A model with an image encoder also reads pixel_values [B, C, H, W] or [B, images, C, H, W]: the images of a sample
  // in the order of its image tokens. Images after those of the tokens are padding. For images of any size they are
  // [B, patches, numbers of a patch], with image_grid_thw [B, images, 3], or padded images with their sizes in
  // image_sizes [B, images, 2].
  // Returns {logits [B, S, V]}, without the layers of multi-token prediction, and with return_hidden_states() for a
  // batch with labels also {hidden_states}; with a head for labels {logits [B, labels]}. If the batch has pooled_tokens
  // int64 [B, n], a head for labels returns {logits [B, n, labels]} of these tokens of each sample. A model of sentence
  // embeddings returns {last_hidden_state [B, S, H], sentence_embedding [B, modes * H]}, or the outputs of groups of
  // texts (SentencePooling::compares) for inputs [B, texts, S]. Models with nn::RotaryOptions::sections also read
  // position_ids [3, B, S].
  TensorDict forward(const TensorDict& inputs);
  // Runs one stage. Stages exchange {hidden [B, S, H]}, and in training after the layers of multi-token prediction also
  // the hidden states of their depths. With streams, hidden is [B, S, N * H], and there are further entries:
  // layer_inputs [B, S, layers * width] of later layers, and the keys and values that later layers share. The layers of
  // an image encoder's tower are a list before those of the decoder; its stages exchange {patches}, which is undefined
  // without images outside of a training step.
  // Throws InputError if S exceeds the model's positions, and for entries and tokens that a decoder of text does not
  // read: images, sounds, and position_ids [B, S, 3] without sections.
  TensorDict stage_forward(const StageContext& stage, const TensorDict& input);

  // Enables noise on the token embeddings in training (NEFTune, arXiv 2310.05914). Call it once, before the model is
  // boosted.
  void add_embedding_noise(double alpha);
  bool has_embedding_noise() const { return noise_ != nullptr; }

  // Lets forwards of batches with labels return hidden_states [B, S, columns of the head] too, which the head reads.
  // With `projected` they are [B, S, projected]: their product with a new matrix, which has the initial values of the
  // other layers. For models that predict tokens. Call it once, before the model is boosted.
  void return_hidden_states(std::int64_t projected = 0);
  // The path of the module that computes them; empty without return_hidden_states().
  std::string hidden_states_module() const;

  const DecoderSpec spec;

 private:
  void initialise();
  // True if this forward runs the layers of multi-token prediction: in a training step. Throws UsageError for a forward
  // in training outside of execute_pipeline.
  bool predicts_further() const;
  LayerParts parts_of_layer(const StageContext& stage, int index, const nn::TokenContext& tokens, bool sums_routers);
  // The parts of a layer of multi-token prediction, for a state with "hidden" and the hidden states of former depths.
  // The first layer adds the output of the model's last norm.
  LayerParts mtp_parts(const StageContext& stage, int index, const nn::TokenContext& tokens);
  void add_mtp_loss(const StageContext& stage, const TensorDict& state);
  // The number of the list of the decoder's layers.
  int decoder_list() const { return encoder_ ? 1 : 0; }
  // [B, S] -> [B, S, H]. `rows`: embeddings of the tokens; undefined: they are looked up. `patches`: of the images,
  // after the tower; undefined: there are none.
  torch::Tensor embed(const StageContext& stage, const torch::Tensor& input_ids, const nn::TokenContext& known,
                      const torch::Tensor& rows, const torch::Tensor& patches);
  // Runs the stage's layers of the tower. `input`: of the stage.
  TensorDict run_tower(const StageContext& stage, TensorDict input);
  // The state before the first layer of the decoder.
  TensorDict first_state(const StageContext& stage, const TensorDict& input, const nn::TokenContext& tokens);
  TensorDict handed_on(const StageContext& stage, const TensorDict& state) const;
  // The features of the images instead of the image tokens, in hidden [B, S or this rank's part, H].
  torch::Tensor with_images(const torch::Tensor& hidden, const torch::Tensor& input_ids, const torch::Tensor& patches,
                            const TensorDict& batch);
  torch::Tensor rows_of_positions(const StageContext& stage, const nn::TokenContext& known,
                                  const torch::Tensor& input_ids) const;
  TensorDict run_stage(const StageContext& stage, const TensorDict& input, nn::TokenContext tokens);
  // The outputs for `hidden`, the input of the head.
  TensorDict token_results(const StageContext& stage, const torch::Tensor& hidden);
  TensorDict compare_texts(const StageContext& stage, const TensorDict& input);
  // `own`: the output of the last layer and norm.
  TensorDict sentence_results(const StageContext& stage, const nn::TokenContext& known, const torch::Tensor& own) const;
  // [B, S, H] -> [B, H]: the last token of each sample before its padding; with pooled_tokens [B, n, H].
  torch::Tensor last_tokens(const nn::TokenContext& known, const TensorDict& batch, const torch::Tensor& own) const;

  nn::Embedding tokens_{nullptr}, positions_{nullptr};
  std::shared_ptr<nn::EmbeddingNoiseImpl> noise_;  // null: none
  std::shared_ptr<ImageEncoder> encoder_;          // null: the model reads text only
  std::shared_ptr<StreamEnds> streams_;            // null: one stream
  std::shared_ptr<LayerInputs> layer_inputs_;      // null: the layers have no embeddings of their own
  nn::PrepareInput image_rows_{nullptr};
  nn::Dropout dropout_{nullptr};
  torch::nn::ModuleList layers_;
  DecoderNorm embedding_norm_, norm_;
  nn::Linear project_in_{nullptr}, project_out_{nullptr}, head_{nullptr};
  nn::PrepareInput full_sequence_{nullptr};  // null: the head has an output for each token
  // Both null: the hidden states are not returned.
  nn::PrepareInput full_hidden_{nullptr};
  nn::Linear hidden_projection_{nullptr};
  std::shared_ptr<nn::GatherSamplesImpl> samples_;  // null unless sentence embeddings are compared
};
TORCH_MODULE(Decoder);

}  // namespace gantry::models
