#include "gantry/models/model_family.h"

#include "gantry/models/gpt2_family.h"

namespace gantry::models {

Registry<ModelFamily>& families() {
  struct Filled : Registry<ModelFamily> {
    Filled() : Registry("model family") { add("gpt2", gpt2_family()); }
  };
  static Filled registry;
  return registry;
}

std::string normalise_name(const std::string& model_type, const std::string& file_name) {
  if (model_type != "gpt2") return file_name;
  // Causal masks that old files carry as buffers.
  if (file_name.ends_with(".attn.bias") || file_name.ends_with(".attn.masked_bias")) return "";
  const bool bare = !file_name.starts_with("transformer.") && !file_name.starts_with("lm_head.");
  return bare ? "transformer." + file_name : file_name;
}

}  // namespace gantry::models
