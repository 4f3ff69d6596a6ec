// The configurations of models with an encoder, and the functions that read them from Hugging Face's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/models/described/bert_config.h"
#include "gantry/models/described/config_reader.h"
#include "gantry/nn/rotary_options.h"

namespace gantry::models {

struct ModernBertConfig {
  // Keys that BERT has too, by its names. hidden_dropout_prob is the embedding's.
  BertConfig bert;
  std::vector<std::int64_t> windows;       // by layer: tokens that are less than this apart see each other; 0: all
  nn::RotaryOptions rotary, local_rotary;  // for layers without and with a window
  bool attention_bias = false, mlp_bias = false, norm_bias = false, decoder_bias = true, classifier_bias = false;
  std::string classifier_activation = "gelu";
  bool mean_pooling = false;  // the head for sequences reads the mean of all tokens instead of the first one
  double mlp_dropout = 0;
};

struct VitConfig {  // Hugging Face's keys
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t image_size = 224;
  std::int64_t patch_size = 16;
  std::int64_t num_channels = 3;
  std::int64_t num_labels = 2;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  bool qkv_bias = true;

  std::int64_t tokens() const { return (image_size / patch_size) * (image_size / patch_size) + 1; }
};

struct T5Config {             // Hugging Face's keys
  std::string family = "t5";  // or "mt5" or "umt5"
  std::int64_t vocab_size = 32128;
  std::int64_t d_model = 512;
  std::int64_t d_kv = 64;
  std::int64_t d_ff = 2048;
  std::int64_t num_layers = 6;
  std::int64_t num_decoder_layers = 6;
  std::int64_t num_heads = 8;
  std::int64_t relative_attention_num_buckets = 32;
  std::int64_t relative_attention_max_distance = 128;
  std::int64_t pad_token_id = 0;
  std::int64_t decoder_start_token_id = 0;
  double dropout_rate = 0.1;
  double layer_norm_epsilon = 1e-6;
  double initializer_factor = 1;
  std::string activation = "relu";
  bool gated = false;                 // wo(activation(wi_0(x)) * wi_1(x)) in place of wo(activation(wi(x)))
  bool scale_decoder_outputs = true;  // by d_model^-0.5, before the head
  bool tie_word_embeddings = true;
  bool bias_in_each_layer = false;  // umT5: each layer has a relative position bias of its own
  // Tables that files store with other values than the shared one. These two keys are Gantry's.
  bool separate_encoder_embedding = false, separate_decoder_embedding = false;

  // False if no layer reads the shared table.
  bool has_shared_table() const {
    return tie_word_embeddings || !separate_encoder_embedding || !separate_decoder_embedding;
  }
};

// An encoder and a decoder, with the keys that BART and Whisper share in Hugging Face's files.
struct StacksConfig {
  std::int64_t vocab_size = 1;
  std::int64_t d_model = 1;
  std::int64_t encoder_layers = 1, encoder_attention_heads = 1, encoder_ffn_dim = 1;
  std::int64_t decoder_layers = 1, decoder_attention_heads = 1, decoder_ffn_dim = 1;
  std::int64_t pad_token_id = 0;
  std::int64_t decoder_start_token_id = 0;
  std::string activation_function = "gelu";
  double dropout = 0, attention_dropout = 0, activation_dropout = 0;
  double init_std = 0.02;
  bool tie_word_embeddings = true;
};

// BART and Pegasus.
struct BartConfig : StacksConfig {
  BartConfig();  // the defaults of transformers
  std::string family = "bart";
  std::int64_t max_position_embeddings = 1024;
  bool scale_embedding = false;  // by sqrt(d_model)
  // True: each block is normed before, and each stack after its layers; positions are fixed sinusoids (Pegasus). False:
  // norms follow the embedding and each block; positions are trained.
  bool norms_before = false;
  const char* name() const { return norms_before ? "Pegasus" : "BART"; }
  std::int64_t first_position() const { return norms_before ? 0 : 2; }  // row of the first token in a position table
};

struct WhisperConfig : StacksConfig {
  WhisperConfig();  // the defaults of transformers
  std::int64_t num_mel_bins = 80;
  std::int64_t max_source_positions = 1500;  // encoder tokens; each is made from two steps of sound
  std::int64_t max_target_positions = 448;
};

// Each throws ConfigError like ConfigReader.
BertConfig read_bert(ConfigReader& reader);
BertConfig read_roberta(ConfigReader& reader);
BertConfig read_xlm_roberta(ConfigReader& reader);
BertConfig read_distilbert(ConfigReader& reader);
BertConfig read_nomic_bert(ConfigReader& reader);
BertConfig read_electra(ConfigReader& reader);
ModernBertConfig read_modern_bert(ConfigReader& reader);
VitConfig read_vit(ConfigReader& reader);
T5Config read_t5(ConfigReader& reader);
T5Config read_mt5(ConfigReader& reader);
T5Config read_umt5(ConfigReader& reader);
// Returns the defaults of a family of T5's: "t5", "mt5" or "umt5".
T5Config t5_defaults(const std::string& family);
// Reads the keys of StacksConfig, whose present values are the defaults.
void read_stacks(ConfigReader& reader, StacksConfig& config);
WhisperConfig read_whisper(ConfigReader& reader);
BartConfig read_bart(ConfigReader& reader);
BartConfig read_pegasus(ConfigReader& reader);

// Returns the name of the head that is built: the first entry of `architectures` if the family has this head, or else
// the head that takes the most weights of the file's.
std::string bert_architecture(const nlohmann::json& keys, const std::string& stem);
// Reads this head, the number of its labels and its problem_type.
void read_text_head(ConfigReader& reader, BertConfig& config, const std::string& stem);
// Reads pad_token_id. Without the key it is `missing`, if this is a token of the vocabulary; an explicit null means
// that no token is padding.
std::optional<std::int64_t> read_padding_token(ConfigReader& reader, std::int64_t missing, std::int64_t vocabulary);

}  // namespace gantry::models
