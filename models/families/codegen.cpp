#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// GPT-J with query, value and key in one projection of four blocks.
DecoderSpec read_codegen(ConfigReader& reader) {
  DecoderSpec spec = gptj_family().read(reader);
  const std::int64_t heads = spec.layers.front().attention.heads;
  if (heads % kRowBlocks != 0)
    refuse_key("n_head", heads, "a multiple of 4, because the rows of query, key and value are in 4 blocks");
  for (LayerSpec& layer : spec.layers) layer.attention.rows = ProjectionRows::kBlocks;
  spec.names.fused = "attn.qkv_proj";
  return spec;
}

}  // namespace

DecoderFamily codegen_family() {
  DecoderFamily family = gptj_family();
  family.model_type = "codegen";
  family.architecture = "CodeGenForCausalLM";
  family.read = read_codegen;
  family.files.ignored.emplace_back(".attn.causal_mask");
  family.harmless.push_back("n_ctx");
  return family;
}

}  // namespace gantry::models
