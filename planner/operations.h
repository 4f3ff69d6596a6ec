// The work of one rank for one microbatch in a layer, the embedding or the head: the operations of forward and
// backward, and the bytes that are kept in between. No other file knows what a layer computes.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gantry/planner/layout.h"

namespace gantry::planner {

struct Operation {
  enum class Kind {
    kProduct,      // matrix multiplication
    kCore,         // fused attention core
    kElementwise,  // reads and writes
    kReduce,       // all-reduce over tensor ranks
    kHalfReduce,   // all-gather or reduce-scatter over tensor ranks
    kPass,         // keys and values sent around the ring of context ranks
    kHeads,        // exchange of heads for tokens between context ranks
    kGatherKeys,   // all-gather or reduce-scatter of keys and values over context ranks
    kExchange,     // exchange of tokens between expert ranks
  };
  Kind kind;
  double flops = 0;       // for kPass: the flops of the core that it overlaps with
  double bytes = 0;       // moved by the device; for collectives: as in planner/collectives.h
  std::string name = {};  // for kElementwise: the key in Device::operation_efficiency; empty: none
};

struct PartOperations {
  std::vector<Operation> forward, input_gradient, weight_gradient;
  std::vector<Operation> core;  // the attention core's operations in `forward`
  double kept = 0;              // bytes from forward to backward
  double kept_core = 0;         // bytes of `kept` that the core produces
  double kept_inputs = 0;       // bytes of the inputs of attention and MLP, from which both can be recomputed
  double kept_layer_input = 0;  // bytes of the input of the layer
  double kept_attention = 0;    // bytes of `kept` before the MLP's norm
  double working = 0;           // peak of the bytes that a backward allocates in addition to `kept`
};

PartOperations layer_operations(const Workload& workload, const models::LayerSpec& layer, const Layout& layout);
// The operations of a layer of the pipeline: those of the tower of an image encoder come before those of the decoder.
PartOperations layer_operations(const Workload& workload, int layer, const Layout& layout);
// The number of these layers, and whether a layer has the operations of the one before it.
int pipeline_layers(const models::DecoderSpec& model);
bool repeats_layer(const models::DecoderSpec& model, int layer);
// The operations before the first layer of the decoder, without those of an image encoder.
PartOperations embedding_operations(const Workload& workload, const Layout& layout);
// The operations after the last layer, including the loss.
PartOperations head_operations(const Workload& workload, const Layout& layout);

// The numbers of a token that a stage sends to the next one, whose first layer is layer `next` of the decoder, on one
// of `tensor` tensor ranks. These are its features in all streams, the outputs of depths of multi-token prediction, the
// embeddings of later layers, and the keys and values that later layers share. `token_parts`: number of ranks that
// share the tokens between layers; each has the keys of all tokens.
double columns_passed(const models::DecoderSpec& model, std::size_t next, int tensor, int token_parts);

// True if the logits of a microbatch are too large to be stored (core/config/logit_limit.h).
bool has_tiled_logits(const Workload& workload, const Layout& layout);

inline double as_double(std::int64_t value) { return static_cast<double>(value); }
// Bytes of a value of this precision.
double value_bytes(const std::string& precision);
// The part of `size` on one of `ranks` ranks; the largest part if they do not divide evenly.
double largest_part(std::int64_t size, int ranks);

// Collects the operations of a part; each call appends. attention() is in attention.cpp, mixer() in mixers.cpp.
class OperationBuilder {
 public:
  OperationBuilder(const Workload& workload, const Layout& layout)
      : workload_(workload),
        layout_(layout),
        bytes_(value_bytes(workload.precision)),
        tokens_(static_cast<double>(workload.sequence) / layout.context * layout.microbatch),
        tokens_between_(layout.sequence_parallel ? tokens_ / layout.tensor : tokens_),
        hidden_(static_cast<double>(workload.model.hidden)) {}

  PartOperations take() { return std::move(part_); }
  double bytes() const { return bytes_; }
  double tokens() const { return tokens_; }                  // within attention and MLP
  double tokens_between() const { return tokens_between_; }  // between them: fewer with sequence parallelism

  // A multiplication of [rows, in] with [in, out], which keeps `kept_input` bytes.
  void product(double rows, double in, double out, double kept_input, bool bias = false);
  // The same multiplication once more in the backward, for a result that was not kept.
  void again(double rows, double in, double out);
  // The weight gradients of the operations so far are computed with the input gradients.
  void join_backwards();
  // The bytes that forward and backward read and write.
  void elementwise(double forward_bytes, double backward_bytes, const std::string& name = "") {
    part_.forward.push_back({Operation::Kind::kElementwise, 0, forward_bytes, name});
    part_.input_gradient.push_back({Operation::Kind::kElementwise, 0, backward_bytes, name});
  }
  void keep(double bytes) { part_.kept += bytes; }
  void keep_for_core(double bytes) { part_.kept += bytes, part_.kept_core += bytes; }
  void hold(double bytes) {
    if (workload_.program.keeps_results) part_.working = std::max(part_.working, bytes);
  }
  void end_attention() { part_.kept_attention = part_.kept; }
  // `streams`: number of tensors of `hidden` features that the part reads.
  void keep_input(std::int64_t streams) {
    part_.kept_inputs += static_cast<double>(streams) * bytes_ * tokens_between_ * hidden_;
  }

  void norm(const models::NormSpec& norm);
  // Enters a tensor-parallel region. With sequence parallelism the parts of the input are gathered, and gathered again
  // for the weight gradients unless the gathered input is kept.
  void enter_split();
  // Leaves a tensor-parallel region. Gantry reduces a copy (see nn/autograd_collectives.cpp).
  void leave_split();
  // Adds the output of attention or MLP to the residual stream, after its dropout.
  void residual(double dropout);
  void attention(const models::AttentionSpec& attention);
  void mixer(const models::MixerKind& mixer);
  // `width`: the part of this rank.
  void mlp(double rows, double width, const models::MlpSpec& mlp, bool keeps_input);
  void sparse_gate(double rows, double width);  // for MlpSpec::sparsity
  void experts(const models::ExpertsSpec& experts);

 private:
  double activation_bytes() const { return bytes_ * tokens_ * hidden_; }
  // Gathers parts of the tokens, or scatters their sums. Gantry's collectives work on rows, so with several samples
  // they copy both the part and the full tensor (see comm/process_group.cpp).
  void move_parts(std::vector<Operation>& operations) const;
  void core(const models::AttentionSpec& attention);
  void projections(const models::AttentionSpec& attention);
  // The exchange of a mixer's heads between context ranks; `numbers`: see models::MixerWork::exchanged_of.
  void exchange_heads(double numbers);
  double own_heads(std::int64_t heads) const { return largest_part(heads, layout_.tensor); }

  const Workload& workload_;
  const Layout& layout_;
  double bytes_, tokens_, tokens_between_, hidden_;
  PartOperations part_;
};

// The operations that layers with streams add before and next to attention and after the MLP, and those of the model
// before the first and after the last layer. All do nothing without streams.
void predict_streams(OperationBuilder& builder, const models::LayerSpec& layer, double hidden);
void add_low_rank(OperationBuilder& builder, const models::LayerSpec& layer, double hidden);
void correct_streams(OperationBuilder& builder, const models::LayerSpec& layer, double hidden);
void embed_streams(OperationBuilder& builder, const models::DecoderSpec& model);
void merge_streams(OperationBuilder& builder, const models::DecoderSpec& model);

}  // namespace gantry::planner
