#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with one projection for query, key and value, and one for gate and up. A part of each head is
// rotated.
DecoderSpec read_phi3(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 32064,
                                          .hidden = 3072,
                                          .width = 8192,
                                          .positions = 4096,
                                          .eps = 1e-5,
                                          .rotated = 1,
                                          .original_positions = 4096,
                                          .yarn_is_longrope = true,
                                          .padding = 32000});
  for (LayerSpec& layer : spec.layers) {
    layer.attention.rows = ProjectionRows::kSegments;
    layer.mlp.fused_gate = true;
  }
  spec.embedding_dropout = reader.number("embd_pdrop", 0, 0, 1);
  spec.output_dropout = reader.number("resid_pdrop", 0, 0, 1);
  spec.names.dropout = "embed_dropout";
  spec.names.fused = "self_attn.qkv_proj";
  spec.names.fused_gate = "mlp.gate_up_proj";
  spec.names.output_dropout = "resid_attn_dropout";
  spec.names.mlp_dropout = "resid_mlp_dropout";
  set_window_of_all(spec, reader.size_or_none("sliding_window", 0));
  return spec;
}

}  // namespace

DecoderFamily phi3_family() { return {.model_type = "phi3", .architecture = "Phi3ForCausalLM", .read = read_phi3}; }

}  // namespace gantry::models
