// A decoder as data: what its layers are, and under which names. One module (models/decoder.h), one policy
// (policies/decoder.h) and the shapes of its parameters follow from it. It needs no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/nn/rotary_options.h"

namespace gantry::models {

struct NormSpec {
  enum class Kind { kNone, kRms, kLayer };
  Kind kind = Kind::kNone;  // kNone: there is no norm here
  double eps = 1e-6;
  bool one_plus_weight = false;     // kRms: multiplies with 1 + weight
  bool weight = true, bias = true;  // kLayer: its parameters; none without a weight

  bool exists() const { return kind != Kind::kNone; }
  bool operator==(const NormSpec&) const = default;
};

// How the rows of query, key and value lie in the projections.
enum class ProjectionRows {
  kSeparate,  // three projections
  kSegments,  // one: all query heads, then all key heads, then all value heads
  kPerHead,   // one: query, key and value of the first head, then of the second, ...
  kPerGroup,  // one: the query heads of the first key head, that key and value head, then of the second, ...
};

// Attention whose keys and values come from a narrow projection (DeepSeek-V2, arXiv 2405.04434). A query head has plain
// features and, behind them, features that turn; the turning ones of the key are one for all heads.
struct LatentSpec {
  std::int64_t query_rank = 0;  // of the queries' own narrow projection; 0: they have none
  std::int64_t key_rank = 1;
  std::int64_t plain = 1, rope = 2;  // AttentionSpec::head_size is their sum
  std::int64_t value = 1;            // features of a value head
  bool bias = false;                 // of the narrow projections
  NormSpec norm = {NormSpec::Kind::kRms};

  bool operator==(const LatentSpec&) const = default;
};

struct AttentionSpec {
  std::int64_t heads = 1, key_heads = 1;  // kPerHead: equal
  std::int64_t head_size = 1;
  ProjectionRows rows = ProjectionRows::kSeparate;
  bool bias = false, output_bias = false;
  NormSpec head_norm;          // of each query and key head, before they turn
  NormSpec qk_norm;            // of all query heads together, and of all key heads, before they turn
  NormSpec per_head_norm;      // as head_norm, with a weight of its own for each head; kLayer without a bias
  std::vector<double> slopes;  // of each head, for ALiBi in place of turning; empty: none
  int rotary = -1;             // of DecoderSpec::rotaries; -1: heads do not turn
  double scale = 0;            // of the scores; 0: 1 / sqrt(head_size)
  double soft_cap = 0;         // of the scores; 0: none
  std::int64_t window = 0;     // a token sees itself and the window - 1 before it; 0: all
  double dropout = 0;
  double clip = 0;     // queries, keys and values as projected are within -clip and clip; 0: as they are
  bool sinks = false;  // a score for each head that takes part in the softmax and has no value
  std::optional<LatentSpec> latent = {};  // in place of the projections of query, key and value

  bool operator==(const AttentionSpec&) const = default;
};

struct MlpSpec {
  std::int64_t width = 1;
  bool gated = false;       // down(activation(gate(x)) * up(x)); else down(activation(up(x)))
  bool fused_gate = false;  // gate and up are one projection: all rows of gate, then all of up
  bool bias = false;
  std::string activation = "silu";  // nn::activation_names()

  bool operator==(const MlpSpec&) const = default;
};

// Many MLPs, of which each token uses a few, and one that all tokens use.
struct ExpertsSpec {
  enum class Scores { kSoftmax, kSoftmaxOfUsed, kSigmoid };  // nn::RouterOptions::Scores
  std::int64_t count = 1, used = 1, width = 1;
  std::string activation = "silu";
  Scores scores = Scores::kSoftmax;
  bool normalised = false;
  double added = 0, scale = 1;
  bool router_bias = false, correction = false;
  std::int64_t groups = 1, used_groups = 1;
  bool bias = false, interleaved = false;  // core::ExpertShape
  double limit = 0;                        // nn::ExpertsOptions
  std::int64_t shared_width = 0;           // of the MLP that all tokens use; 0: there is none
  bool shared_gate = false;                // its output is multiplied with sigmoid(x w)

  bool operator==(const ExpertsSpec&) const = default;
};

// serial:   a = x + scale after_attention(attention(input(x))), then a + scale after_mlp(mlp(before_mlp(a)))
// parallel: x + attention(input(x)) + mlp(before_mlp(x)); without before_mlp the MLP reads input(x) too
// post_norm: a = input(x + scale attention(x)), then before_mlp(a + scale mlp(a))
struct LayerSpec {
  NormSpec input, after_attention, before_mlp, after_mlp;
  AttentionSpec attention;
  MlpSpec mlp;
  bool parallel = false, post_norm = false;
  double residual_scale = 1;                // of what attention and MLP add
  std::optional<ExpertsSpec> experts = {};  // in place of mlp

  bool operator==(const LayerSpec&) const = default;
};

// The paths under which modules are registered; those of a layer begin at the layer. They key checkpoints, random
// numbers and patterns. Modules that the spec does not have are not registered.
struct DecoderNames {
  std::string tokens = "embed_tokens", positions, dropout, embedding_norm;
  std::string project_in = "project_in", project_out = "project_out";
  std::string layers = "layers", norm = "norm", head = "lm_head";
  std::string input = "input_layernorm";
  std::string query = "self_attn.q_proj", key = "self_attn.k_proj", value = "self_attn.v_proj";
  std::string fused;  // rows other than kSeparate
  std::string query_norm = "self_attn.q_norm", key_norm = "self_attn.k_norm";
  std::string output = "self_attn.o_proj";
  std::string attention_dropout = "self_attn.dropout", output_dropout;
  std::string after_attention, before_mlp = "post_attention_layernorm";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string fused_gate;
  std::string mlp_dropout, after_mlp;
  std::string sinks = "self_attn.sinks";
  std::string router = "mlp.gate", experts = "mlp.experts";
  std::string shared = "mlp.shared_expert";  // and .gate_proj, .up_proj, .down_proj below it
  std::string shared_gate = "mlp.shared_expert_gate";
  std::string q_a_proj = "self_attn.q_a_proj", q_a_norm = "self_attn.q_a_layernorm";
  std::string q_b_proj = "self_attn.q_b_proj";
  std::string kv_a_proj = "self_attn.kv_a_proj_with_mqa", kv_a_norm = "self_attn.kv_a_layernorm";
  std::string kv_b_proj = "self_attn.kv_b_proj";
  std::string rope_key = "self_attn.turning_key";  // without parameters
};

struct DecoderSpec {
  std::string family;  // "llama"; decides nothing
  std::int64_t vocabulary = 1;
  std::int64_t hidden = 1;
  std::int64_t embedding_width = 0;     // of embedding and head, projected into and out of `hidden`; 0: it is `hidden`
  std::int64_t positions = 1;           // tokens of the longest text
  bool unlimited_positions = false;     // longer texts are allowed too
  std::optional<std::int64_t> padding;  // its row of the embedding gets no gradient from look-ups
  bool learned_positions = false;       // a table of `positions` rows is added
  std::int64_t position_offset = 0;     // above 0: position p of counted tokens is row p + offset of a longer table
  NormSpec embedding_norm;
  double embedding_scale = 1;    // rounded to float32, then to the embedding's dtype
  double embedding_dropout = 0;  // where names.dropout says where
  double output_dropout = 0;     // after attention and MLP, where names say where
  std::vector<nn::RotaryOptions> rotaries;
  std::vector<LayerSpec> layers;
  NormSpec norm;
  bool tied = false;  // the head's weight is the embedding's
  bool head_bias = false;
  double logit_scale = 1;
  double logit_soft_cap = 0;  // 0: none
  // Above 0: transformers' balancing loss of the routers, joint over all layers, is added with this coefficient.
  double router_loss = 0;
  double initializer_range = 0.02;
  bool initial_by_depth = false;  // the projections into the residual stream begin smaller, by 1 / sqrt(2 layers)
  DecoderNames names;
};

// One parameter, by its registered name. A tied head is not among them.
struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;
  double used = 1;  // of its elements, the share that a token is multiplied with
};
std::vector<ParameterShape> parameter_shapes(const DecoderSpec& spec);

// Columns of the embedding and of the head.
std::int64_t embedding_columns(const DecoderSpec& spec);

// Rows of a fused projection of query, key and value.
std::int64_t fused_rows(const AttentionSpec& attention);

// ALiBi's slopes of so many heads.
std::vector<double> alibi_slopes(std::int64_t heads);

}  // namespace gantry::models
