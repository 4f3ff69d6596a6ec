// A decoder as data: its layers and their names. The module (models/decoder.h), the policy (policies/decoder.h) and the
// parameter shapes are derived from it. Independent of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/models/described/mixer_spec.h"
#include "gantry/models/described/sentence_pooling.h"
#include "gantry/models/described/vision_spec.h"
#include "gantry/nn/rotary_options.h"

namespace gantry {
struct ExpertShape;  // core/shard_style.h
}

namespace gantry::models {

struct NormSpec {
  enum class Kind { kNone, kRms, kLayer };
  Kind kind = Kind::kNone;  // kNone: no norm
  double eps = 1e-6;
  bool one_plus_weight = false;     // the scale is 1 + weight; kLayer: requires a weight
  bool weight = true, bias = true;  // which parameters exist; a bias requires kLayer and a weight

  bool exists() const { return kind != Kind::kNone; }
  bool operator==(const NormSpec&) const = default;
};

// The order of the query, key and value rows in the projections.
enum class ProjectionRows {
  kSeparate,  // three projections
  kSegments,  // one projection: all query heads, then all key heads, then all value heads
  kPerHead,   // one projection: query, key and value of the first head, then of the second, ...
  // One projection: the query heads of the first KV head, its key and value head, then those of the second, ...
  kPerGroup,
  // One projection of kRowBlocks blocks with equal numbers of heads. A block has all its query heads, then all its
  // value heads, then all its key heads (CodeGen).
  kBlocks,
};
inline constexpr std::int64_t kRowBlocks = 4;

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values are computed from a low-rank projection.
// A query head has features without position, followed by rotary features. All heads share the rotary features of the
// key.
struct LatentSpec {
  std::int64_t query_rank = 0;  // rank of the query projection; 0: queries have no low-rank projection
  std::int64_t key_rank = 1;
  std::int64_t plain = 1, rope = 2;  // AttentionSpec::head_size is their sum
  std::int64_t value = 1;            // features of a value head
  bool bias = false;                 // bias of the low-rank projections
  NormSpec norm = {NormSpec::Kind::kRms};

  bool operator==(const LatentSpec&) const = default;
};

struct AttentionSpec {
  std::int64_t heads = 1, key_heads = 1;  // kPerHead and kBlocks require equal numbers
  std::int64_t head_size = 1;
  ProjectionRows rows = ProjectionRows::kSeparate;
  bool bias = false, output_bias = false;
  NormSpec head_norm;              // norm of each query and key head, before the rotary embedding
  bool norm_after_rotary = false;  // head_norm is after the rotary embedding instead
  NormSpec value_norm;             // norm of each value head
  NormSpec qk_norm;            // norm over all query heads together, and over all KV heads, before the rotary embedding
  NormSpec per_head_norm;      // like head_norm, with separate weights for each head; kLayer without a bias
  std::vector<double> slopes;  // ALiBi slope of each head, instead of a rotary embedding; empty: none
  int rotary = -1;             // index in DecoderSpec::rotaries; -1: no rotary embedding
  double scale = 0;            // scale of the scores; 0: 1 / sqrt(head_size)
  double soft_cap = 0;         // soft cap of the scores; 0: none
  std::int64_t chunk = 0;      // a token attends only to the tokens of its chunk of this many; 0: no chunks
  std::int64_t window = 0;     // a token attends to itself and the window - 1 tokens before it; 0: to all
  double dropout = 0;
  // Queries at position p are multiplied by 1 + temperature ln(1 + floor((p + 1) / temperature_step)); 0: by 1.
  double temperature = 0;
  std::int64_t temperature_step = 1;
  double clip = 0;  // queries, keys and values are clamped to [-clip, clip]; 0: no clamping
  double input_scale = 1, key_scale = 1, output_scale = 1;  // scales of the input, of the keys, and of the output
  bool sinks = false;  // attention sinks: a learned score per head in the softmax, without a value
  // The output of each head is multiplied by sigmoid(gate) before the output projection. The query projection has the
  // rows of the gates: after the query of each head, its gate. Requires kSeparate and no latent attention.
  bool gated = false;
  std::optional<LatentSpec> latent = {};  // replaces the projections of query, key and value
  // Index of an earlier layer whose keys and values this layer uses instead of its own; -1: its own. Requires a serial
  // layer, kSeparate and no latent attention.
  int keys_of = -1;

  bool operator==(const AttentionSpec&) const = default;
};

// The activation of an MLP without a gate whose slopes are parameters, nn::Xielu.
inline constexpr const char* kTrainedActivation = "xielu";

struct MlpSpec {
  std::int64_t width = 1;
  bool gated = false;       // down(activation(gate(x)) * up(x)); otherwise down(activation(up(x)))
  bool fused_gate = false;  // gate and up are one projection: all gate rows, then all up rows
  bool bias = false;
  std::string activation = "silu";          // one of nn::activation_names(), or kTrainedActivation
  double gate_scale = 1, output_scale = 1;  // scales of the gate before its activation, and of the output
  // Fraction of the gate's features that nn::sparse_gate() sets to zero; 0: none. Requires a gate with a projection of
  // its own.
  double sparsity = 0;

  bool operator==(const MlpSpec&) const = default;
};

// A mixture of experts: many MLPs, of which each token uses a few, and an optional shared MLP that all tokens use.
struct ExpertsSpec {
  enum class Scores { kSoftmax, kSoftmaxOfUsed, kSigmoid };  // see nn::RouterOptions::Scores
  std::int64_t count = 1, used = 1, width = 1;
  std::string activation = "silu";
  bool gated = true;  // down(activation(gate(x)) * up(x)), also in the shared MLP; otherwise down(activation(up(x)))
  Scores scores = Scores::kSoftmax;
  bool normalised = false;
  double added = 0, least_sum = 0, scale = 1;
  bool router_bias = false, correction = false, correction_row = false;
  std::int64_t groups = 1, used_groups = 1;
  std::int64_t group_scores = 2;                               // see nn::RouterOptions
  bool bias = false, interleaved = false, transposed = false;  // see ExpertShape
  double limit = 0;                                            // see nn::ExpertsOptions
  bool weights_input = false;                                  // see nn::ExpertsOptions
  std::int64_t shared_width = 0;                               // width of the shared MLP; 0: none
  bool shared_gate = false;   // the output of the shared MLP is multiplied by sigmoid(x w)
  bool shared_fused = false;  // gate and up of the shared MLP are one projection: all gate rows first

  bool operator==(const ExpertsSpec&) const = default;
};

// Alternating updates (AltUp, arXiv 2301.13310): layers pass several streams on, of which each computes one. See
// models/altup.h.
struct AltUpSpec {
  std::int64_t streams = 2;
  std::int64_t active = 0;  // index of the stream that the layer computes
  double clip = 0;          // in training, the weights of the coefficients are clamped to [-clip, clip]; 0: no clamping
  bool scaled = false;      // the active stream is multiplied by a trained vector before the layer's embedding is used

  bool operator==(const AltUpSpec&) const = default;
};

// Embeddings of tokens for each layer: a table with `width` columns for each of `layers` layers, to which a projection
// of the model's embedding is added. See models/layer_inputs.h.
struct LayerInputsSpec {
  std::int64_t vocabulary = 1;  // number of rows; larger tokens have row 0
  std::int64_t width = 1, layers = 1;

  std::int64_t columns() const { return width * layers; }
  bool operator==(const LayerInputsSpec&) const = default;
};

// Factors of a sum "factor kept * residual + factor added * output".
struct ResidualFactors {
  double kept = 1, added = 1;

  bool operator==(const ResidualFactors&) const = default;
};

// A layer computes, from its input x:
//
//   serial:    a = x + scale after_attention(attention(input(x))), then a + scale after_mlp(mlp(before_mlp(a)))
//   parallel:  x + attention(input(x)) + mlp(before_mlp(x)); without before_mlp, the MLP reads input(x) too
//   post_norm: a = input(x + scale attention(x)), then before_mlp(a + scale mlp(a))
//   normed_residual: with n = input(x), a = kept n + added attention(n); then, with m = before_mlp(a) and factors of
//              their own, kept m + added mlp(m) (MiniMax)
//
// A serial layer with laurel_rank adds a low-rank branch of the normed input n = input(x) (LAuReL, arXiv 2411.07501):
// a = (x + after_attention(attention(n)) + n + norm(B A n)) / sqrt(2). With altup, x is the prediction of the active
// stream, and the result of the layer corrects all streams. With input_width, all streams but the first add
// norm(P (activation(G s) * e)) to that, of the corrected active stream s and the token's embedding e for this layer.
//
// A mixer of another kind replaces the attention, or its output is added to the attention's. All layers have the sizes
// of `attention`, with or without a mixer. A serial layer may have no MLP: x + scale attention(input(x)), or nothing
// else: x + scale mlp(before_mlp(x)).
struct LayerSpec {
  NormSpec input, after_attention, before_mlp, after_mlp;
  AttentionSpec attention;
  MlpSpec mlp;
  bool parallel = false, post_norm = false, normed_residual = false;
  ResidualFactors mixer_factors = {}, mlp_factors = {};  // used with normed_residual
  double residual_scale = 1;                             // scale of the outputs of attention and MLP
  std::optional<ExpertsSpec> experts = {};               // replaces mlp
  MixerSpec mixer = {};                                  // replaces attention; empty: attention
  bool adds_attention = false;                           // the mixer is next to attention, instead of replacing it
  bool has_mlp = true;
  bool only_mlp = false;                // a serial layer without attention and mixer
  bool mtp = false;                     // predicts a further token, see DecoderSpec::mtp_loss
  std::optional<AltUpSpec> altup = {};  // requires a serial layer with attention and an MLP without experts
  std::int64_t laurel_rank = 0;         // requires altup; 0: no such branch
  std::int64_t input_width = 0;         // LayerInputsSpec::width, requires altup; 0: no embeddings of this layer

  bool has_attention() const { return !only_mlp && (!mixer || adds_attention); }

  bool operator==(const LayerSpec&) const = default;
};

// The paths under which modules are registered; those of a layer are relative to the layer. Checkpoints, random numbers
// and name patterns use them. Modules that the spec does not have are not registered.
struct DecoderNames {
  std::string tokens = "embed_tokens", positions, dropout, embedding_norm;
  std::string project_in = "project_in", project_out = "project_out";
  std::string layers = "layers", norm = "norm", head = "lm_head";
  std::string input = "input_layernorm";
  std::string query = "self_attn.q_proj", key = "self_attn.k_proj", value = "self_attn.v_proj";
  std::string fused;  // for ProjectionRows other than kSeparate
  std::string query_norm = "self_attn.q_norm", key_norm = "self_attn.k_norm";
  std::string output = "self_attn.o_proj";
  std::string attention_dropout = "self_attn.dropout", output_dropout;
  std::string after_attention, before_mlp = "post_attention_layernorm";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string fused_gate;
  std::string activation = "mlp.act_fn";  // for kTrainedActivation
  std::string mlp_dropout, after_mlp;
  std::string sinks = "self_attn.sinks";
  std::string router = "mlp.gate", experts = "mlp.experts";
  std::string shared = "mlp.shared_expert";  // the prefix of .gate_proj, .up_proj (or .gate_up_proj) and .down_proj
  std::string shared_gate = "mlp.shared_expert_gate";
  std::string q_a_proj = "self_attn.q_a_proj", q_a_norm = "self_attn.q_a_layernorm";
  std::string q_b_proj = "self_attn.q_b_proj";
  std::string kv_a_proj = "self_attn.kv_a_proj_with_mqa", kv_a_norm = "self_attn.kv_a_layernorm";
  std::string kv_b_proj = "self_attn.kv_b_proj";
  std::string rope_key = "self_attn.turning_key";  // has no parameters
  std::string mtp_embedding_norm = "enorm", mtp_hidden_norm = "hnorm", mtp_projection = "eh_proj";
  std::string mtp_norm = "shared_head.norm";
  std::string value_norm = "self_attn.v_norm";
  std::string altup = "altup", laurel = "laurel";
  std::string input_gate = "per_layer_input_gate", input_projection = "per_layer_projection";
  std::string input_norm = "post_per_layer_input_norm";
  // Outside of layers: the embeddings of all layers, and the projections between the first stream and the other ones.
  std::string layer_tokens = "embed_tokens_per_layer", layer_projection = "per_layer_model_projection";
  std::string layer_projection_norm = "per_layer_projection_norm";
  std::string streams_in = "altup_projections", streams_out = "altup_unembed_projections";
};

// The description of a decoder.
struct DecoderSpec {
  std::string family;  // "llama"; only informative
  std::int64_t vocabulary = 1;
  std::int64_t hidden = 1;
  // Width of embedding and head, which are projected into and out of `hidden`; 0: equal to `hidden`.
  std::int64_t embedding_width = 0;
  std::int64_t positions = 1;           // maximum number of tokens of a sequence
  bool unlimited_positions = false;     // longer sequences are allowed too
  std::optional<std::int64_t> padding;  // row of the embedding that gets no gradient from look-ups
  bool learned_positions = false;       // a table with `positions` rows is added to the embeddings
  // Above 0: position p of the counted tokens is row p + offset of a table with that many additional rows.
  std::int64_t position_offset = 0;
  NormSpec embedding_norm;
  std::int64_t streams = 1;  // AltUpSpec::streams of all layers; 1: the layers have none
  std::optional<LayerInputsSpec> layer_inputs = {};
  // Above 0: tokens from this number on stand for images and sounds, which the model does not read.
  std::int64_t text_tokens = 0;
  double embedding_scale = 1;    // rounded to float32, then to the dtype of the embedding
  double embedding_dropout = 0;  // at names.dropout; no dropout if that is empty
  double output_dropout = 0;     // after attention and MLP, if names has paths for it
  std::vector<nn::RotaryOptions> rotaries;
  std::vector<LayerSpec> layers;
  NormSpec norm;
  // Above 0: the head has one output per label, for the last token of each sample before its padding. 0: one per token
  // of the vocabulary, for each token.
  std::int64_t labels = 0;
  std::optional<std::int64_t> label_padding = {};  // the token of that padding; not set: attention_mask decides
  // Set: there is no head, and the model computes the embedding of each sample, a sentence.
  std::optional<SentencePooling> sentence = {};
  bool tied = false;  // the head's weight is the embedding's
  bool head_bias = false;
  double logit_scale = 1;
  double logit_soft_cap = 0;  // 0: none
  // Coefficient of the load-balancing loss of transformers, computed jointly over all layers; 0: none.
  double router_loss = 0;
  // Factor of the loss of multi-token prediction (DeepSeek-V3, arXiv 2412.19437); 0: there are no such layers. The last
  // layers are then those with LayerSpec::mtp. Layer k of them, from 1, reads
  //
  //   projection(concat(embedding_norm(embedding of token i + k), hidden_norm(hidden state i of depth k - 1)))
  //
  // and its output after mtp_norm is the hidden state of depth k, from which the head predicts token i + k + 1. Depth 0
  // is the output of `norm`.
  double mtp_loss = 0;
  double initializer_range = 0.02;
  bool initial_by_depth = false;  // scale the initial projections into the residual stream by 1 / sqrt(2 layers)
  std::optional<VisionSpec> vision = {};  // the image encoder, whose features replace image tokens; not set: none
  DecoderNames names;
};

// One parameter, by its registered name. A tied head is not included.
struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;
  double used = 1;  // fraction of its elements that are used for a token
};
std::vector<ParameterShape> parameter_shapes(const DecoderSpec& spec);

// The number of layers without those of multi-token prediction, and the number of those.
int main_layers(const DecoderSpec& spec);
int mtp_depths(const DecoderSpec& spec);

// The shape of a layer's experts.
ExpertShape expert_shape(const ExpertsSpec& experts, std::int64_t hidden);

// True if the head has an output for each token of the vocabulary.
bool predicts_tokens(const DecoderSpec& spec);

// The number of outputs of the head: the labels, or the vocabulary; 0 without a head.
std::int64_t head_rows(const DecoderSpec& spec);

// The number of columns of the embedding and of the head.
std::int64_t embedding_columns(const DecoderSpec& spec);

// The number of rows of a fused projection of query, key and value.
std::int64_t fused_rows(const AttentionSpec& attention);

// The ALiBi slopes of `heads` heads.
std::vector<double> alibi_slopes(std::int64_t heads);

}  // namespace gantry::models
