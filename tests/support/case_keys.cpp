// The config.json of a case, family by family.
#include <map>
#include <nlohmann/json.hpp>

#include "case_batch.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

json t5_keys(const ModelCase& what) {
  return {{"num_layers", what.layers},
          {"num_decoder_layers", 2},
          {"num_heads", what.heads},
          {"d_model", what.width},
          {"d_kv", 5},
          {"d_ff", 37},
          {"relative_attention_num_buckets", 8},
          {"relative_attention_max_distance", 6},
          {"vocab_size", what.vocabulary},
          {"dropout_rate", what.dropout},
          {"tie_word_embeddings", what.tied}};
}

json bart_keys(const ModelCase& what) {
  return {{"encoder_layers", what.layers},
          {"encoder_attention_heads", what.heads},
          {"encoder_ffn_dim", 37},
          {"decoder_layers", 2},
          {"decoder_attention_heads", what.heads},
          {"decoder_ffn_dim", 29},
          {"d_model", what.width},
          {"max_position_embeddings", what.tokens},
          {"vocab_size", what.vocabulary},
          {"dropout", what.dropout},
          {"attention_dropout", what.dropout},
          {"activation_dropout", what.dropout},
          {"tie_word_embeddings", what.tied}};
}

json whisper_keys(const ModelCase& what) {
  return {{"encoder_layers", what.layers},
          {"encoder_attention_heads", what.heads},
          {"encoder_ffn_dim", 37},
          {"decoder_layers", 2},
          {"decoder_attention_heads", 3},
          {"decoder_ffn_dim", 29},
          {"d_model", what.width},
          {"num_mel_bins", kMelBins},
          {"max_source_positions", kSoundTokens},
          {"max_target_positions", what.tokens},
          {"vocab_size", what.vocabulary},
          {"dropout", what.dropout},
          {"attention_dropout", what.dropout},
          {"activation_dropout", what.dropout},
          {"tie_word_embeddings", what.tied}};
}

json vit_keys(const ModelCase& what) {
  return {{"num_hidden_layers", what.layers},
          {"num_attention_heads", what.heads},
          {"hidden_size", what.width},
          {"intermediate_size", 37},
          {"hidden_dropout_prob", what.dropout},
          {"attention_probs_dropout_prob", what.dropout},
          {"image_size", kImage},
          {"patch_size", 2},
          {"num_channels", 2},
          {"num_labels", 3}};
}

json gpt2_keys(const ModelCase& what) {
  return {{"n_layer", what.layers},        {"n_head", what.heads},       {"n_embd", what.width},
          {"vocab_size", what.vocabulary}, {"n_positions", what.tokens}, {"resid_pdrop", what.dropout},
          {"embd_pdrop", what.dropout},    {"attn_pdrop", what.dropout}, {"tie_word_embeddings", what.tied}};
}

json bloom_keys(const ModelCase& what) {
  return {{"n_layer", what.layers},          {"n_head", what.heads},           {"hidden_size", what.width},
          {"vocab_size", what.vocabulary},   {"hidden_dropout", what.dropout}, {"attention_dropout", what.dropout},
          {"tie_word_embeddings", what.tied}};
}

// Keys that have the same names in most families.
json common_keys(const ModelCase& what) {
  return {{"num_hidden_layers", what.layers}, {"num_attention_heads", what.heads},
          {"hidden_size", what.width},        {"intermediate_size", 37},
          {"vocab_size", what.vocabulary},    {"max_position_embeddings", what.tokens},
          {"tie_word_embeddings", what.tied}};
}

json gpt_neo_keys(const ModelCase& what) {
  json keys = common_keys(what);
  for (const char* key : {"num_hidden_layers", "num_attention_heads"}) keys.erase(key);
  keys.update({{"num_layers", what.layers},
               {"num_heads", what.heads},
               {"attention_types", json::array({json::array({json::array({"local"}), what.layers})})},
               {"attention_dropout", what.dropout},
               {"embed_dropout", what.dropout},
               {"resid_dropout", what.dropout}});
  return keys;
}

std::string stem_of(const std::string& family) {
  static const std::map<std::string, std::string> stems = {
      {"bert", "Bert"},       {"distilbert", "DistilBert"}, {"modernbert", "ModernBert"}, {"nomic_bert", "NomicBert"},
      {"electra", "Electra"}, {"roberta", "Roberta"},       {"xlm-roberta", "XLMRoberta"}};
  return stems.at(family);
}

json distilbert_keys(const ModelCase& what) {
  return {{"n_layers", what.layers},
          {"n_heads", what.heads},
          {"dim", what.width},
          {"hidden_dim", 37},
          {"vocab_size", what.vocabulary},
          {"max_position_embeddings", what.tokens},
          {"tie_word_embeddings", what.tied},
          {"dropout", what.dropout},
          {"attention_dropout", what.dropout},
          {"qa_dropout", what.dropout},
          {"seq_classif_dropout", what.dropout}};
}

// A window of five tokens in two layers of three.
json modern_bert_keys(const ModelCase& what) {
  json keys = common_keys(what);
  keys["local_attention"] = 4;
  for (const char* key : {"attention_dropout", "classifier_dropout", "embedding_dropout", "mlp_dropout"})
    keys[key] = what.dropout;
  return keys;
}

json bert_keys(const ModelCase& what) {
  json keys = what.family == "distilbert"   ? distilbert_keys(what)
              : what.family == "modernbert" ? modern_bert_keys(what)
                                            : common_keys(what);
  if (what.family == "roberta" || what.family == "xlm-roberta")
    keys.update({{"pad_token_id", 1}, {"max_position_embeddings", what.tokens + 2}});
  if (what.family != "distilbert" && what.family != "modernbert")
    keys.update({{"hidden_dropout_prob", what.dropout}, {"attention_probs_dropout_prob", what.dropout}});
  keys.update({{"architectures", {stem_of(what.family) + what.head}}, {"num_labels", 3}});
  return keys;
}

json decoder_keys(const ModelCase& what) {
  json keys = common_keys(what);
  if (what.family == "mamba" || what.family == "mamba2") {
    for (const char* key : {"num_attention_heads", "intermediate_size", "max_position_embeddings"}) keys.erase(key);
    return keys;
  }
  keys["attention_dropout"] = what.dropout;
  if (what.family == "opt" || what.family == "falcon") {
    keys.erase("intermediate_size");
    keys[what.family == "opt" ? "ffn_dim" : "ffn_hidden_size"] = 37;
    keys[what.family == "opt" ? "dropout" : "hidden_dropout"] = what.dropout;
    return keys;
  }
  if (what.family != "gpt_neox") keys["num_key_value_heads"] = what.key_heads;
  if (what.family == "llama") keys["attention_bias"] = true;
  if (what.family == "gpt_neox") keys["hidden_dropout"] = what.dropout;
  if (what.family == "phi" || what.family == "phi3")
    keys.update({{"resid_pdrop", what.dropout}, {"embd_pdrop", what.dropout}});
  return keys;
}

// A decoder with an image encoder: images of 2 x 2 features from 4 x 4 patches.
json image_text_keys(const ModelCase& what) {
  json text = decoder_keys(what);
  text["head_dim"] = 6;
  json keys = {{"image_encoder", true}, {"tie_word_embeddings", what.tied}};
  json vision = {{"hidden_size", 12},        {"intermediate_size", 17},        {"num_hidden_layers", 2},
                 {"num_attention_heads", 3}, {"image_size", 2 * kPictureSide}, {"patch_size", 2},
                 {"num_channels", 2}};
  if (what.family == "qwen2_5_vl") {
    vision = {{"hidden_size", 24},
              {"intermediate_size", 17},
              {"depth", 2},
              {"num_heads", 3},
              {"patch_size", 2},
              {"in_channels", 2},
              {"window_size", 4},
              {"fullatt_block_indexes", {1}},
              {"out_hidden_size", what.width}};
    const json rotary = {{"rope_type", "default"}, {"rope_theta", 1000.0}, {"mrope_section", {1, 1, 1}}};
    text.update({{"model_type", "qwen2_5_vl_text"}, {"rope_parameters", rotary}});
    keys.update({{"image_token_id", what.vocabulary - 1}});
  } else if (what.family == "mistral3") {
    vision.update({{"model_type", "pixtral"}, {"hidden_size", 24}});
    text.update({{"model_type", "mistral"}});
    keys.update({{"image_token_index", what.vocabulary - 1}, {"multimodal_projector_bias", true}});
  } else if (what.family == "gemma3") {
    text.update({{"sliding_window", 3}, {"sliding_window_pattern", 2}});
    keys.update({{"mm_tokens_per_image", kPictureTokens}, {"image_token_index", what.vocabulary - 1}});
  } else {
    vision["image_size"] = kPictureSide;
    text.update({{"model_type", "llama"}});
    keys.update({{"image_token_index", what.vocabulary + 3}});  // outside the vocabulary
  }
  keys.update({{"text_config", text}, {"vision_config", vision}});
  return keys;
}

// Two towers, with images of 4 patches.
json contrast_keys(const ModelCase& what) {
  const json layers = {{"num_hidden_layers", what.layers}, {"num_attention_heads", what.heads}};
  json text = {{"hidden_size", what.width},
               {"intermediate_size", 29},
               {"vocab_size", what.vocabulary},
               {"max_position_embeddings", what.tokens},
               {"eos_token_id", what.vocabulary - 1}};
  json vision = {{"hidden_size", what.family == "clip" ? 12 : what.width},
                 {"intermediate_size", 31},
                 {"image_size", kPictureSide},
                 {"patch_size", 2},
                 {"num_channels", 2}};
  text.update(layers);
  vision.update(layers);
  json keys = {{"text_config", text}, {"vision_config", vision}};
  if (what.family == "clip") keys["projection_dim"] = 7;
  return keys;
}

// If the model allows it, the sizes are not divisible by tp 2, 3 and 4.
json model_keys(const ModelCase& what) {
  if (is_contrastive(what.family)) return contrast_keys(what);
  if (reads_pictures(what.family)) return image_text_keys(what);
  if (what.family == "gpt2" || what.family == "gptj" || what.family == "codegen" || what.family == "gpt_bigcode")
    return gpt2_keys(what);
  if (what.family == "gpt_neo") return gpt_neo_keys(what);
  if (what.family == "bart" || what.family == "pegasus") return bart_keys(what);
  if (is_text_pair(what.family)) return t5_keys(what);
  if (what.family == "whisper") return whisper_keys(what);
  if (what.family == "vit") return vit_keys(what);
  if (is_bert(what.family)) return bert_keys(what);
  return what.family == "bloom" ? bloom_keys(what) : decoder_keys(what);
}

}  // namespace

std::string config_keys(const ModelCase& what) {
  json keys = model_keys(what);
  if (what.labels > 0) keys.update({{"architectures", {"ForSequenceClassification"}}, {"num_labels", what.labels}});
  keys.update(json::parse(what.keys));
  return keys.dump();
}

}  // namespace gantry::testing
