#include "gantry/models/described/vision_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// The keys in text_config are those of one of these families.
DecoderSpec read_llava(ConfigReader& text) {
  for (const DecoderFamily& family : {llama_family(), qwen2_family()})
    if (text.family() == family.model_type) return family.read(text);
  return mistral_family().read(text);
}

}  // namespace

FileNames language_model_files() {
  return {.prefix = "language_model.model.",
          .head = "language_model.lm_head",
          .renamed = {},
          .transposed = {},
          .by_row = {},
          .other_parts = {"vision_tower", "multi_modal_projector"}};
}

// LLaVA 1.5, its successors with Qwen 2, and Pixtral.
DecoderFamily llava_family() {
  return {.model_type = "llava",
          .architecture = "LlavaForConditionalGeneration",
          .read = read_llava,
          .read_vision = read_llava_vision,
          .files = language_model_files(),
          .harmless = {"ignore_index", "image_seq_length", "image_token_index", "multimodal_projector_bias",
                       "pretraining_tp", "projector_hidden_act", "vision_config", "vision_feature_layer",
                       "vision_feature_select_strategy"},
          .small = {{"text_config", small_keys()}},
          .tower = TowerKeys{.text_types = {"llama", "mistral", "qwen2"}}};
}

// Mistral Small 3.1 and 3.2.
DecoderFamily mistral3_family() {
  return {.model_type = "mistral3",
          .architecture = "Mistral3ForConditionalGeneration",
          .read = mistral_family().read,
          .read_vision = read_mistral3_vision,
          .image_entries = {"image_sizes"},
          .files = language_model_files(),
          .harmless = {"image_token_index", "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size",
                       "vision_config", "vision_feature_layer"},
          .small = {{"text_config", small_keys()}},
          .tower = TowerKeys{.text_types = {"mistral"}, .tied = true}};
}

}  // namespace gantry::models
