#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// GPT-2 with one KV head for all query heads, or with the rows of query, key and value by head.
DecoderSpec read_gpt_bigcode(ConfigReader& reader) {
  DecoderSpec spec = gpt2_family().read(reader);
  reader.only("scale_attn_by_inverse_layer_idx", false, "transformers has no such scale for gpt_bigcode");
  const bool has_one_key_head = reader.flag("multi_query", true);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.rows = has_one_key_head ? ProjectionRows::kSegments : ProjectionRows::kPerHead;
    if (has_one_key_head) layer.attention.key_heads = 1;
  }
  return spec;
}

}  // namespace

DecoderFamily gpt_bigcode_family() {
  DecoderFamily family = gpt2_family();
  family.model_type = "gpt_bigcode";
  family.architecture = "GPTBigCodeForCausalLM";
  family.read = read_gpt_bigcode;
  family.files.transposed.clear();
  family.harmless = {"attention_softmax_in_fp32",
                     "n_ctx",
                     "scale_attention_softmax_in_fp32",
                     "summary_activation",
                     "summary_first_dropout",
                     "summary_proj_to_labels",
                     "summary_type",
                     "summary_use_proj"};
  return family;
}

}  // namespace gantry::models
