#include "gantry/cli/init_samples.h"

namespace gantry::cli {

const std::vector<SampledFamily>& sampled_families() {
  // BERT: sums of 40 bytes; 256 is the mask token. The first position of RoBERTa is 2, after the padding position 1.
  // T5: words of 8 bytes and an end token, 1.
  const std::string sizes =
      R"({"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, )";
  const std::string of_roberta = sizes + R"("vocab_size": 257, "max_position_embeddings": 42, "type_vocab_size": 1})";
  const std::string of_t5 =
      R"({"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, )"
      R"("vocab_size": 256})";
  const std::string of_bytes = "sequence_length: 40, ", of_words = "sequence_length: 9, ";
  static const std::vector<SampledFamily> families = {
      {"bert", "drawn_bert.h", sizes + R"("vocab_size": 257, "max_position_embeddings": 40})", of_bytes},
      {"roberta", "drawn_bert.h", of_roberta, of_bytes},
      {"xlm-roberta", "drawn_bert.h", of_roberta, of_bytes},
      {"distilbert", "drawn_bert.h",
       R"({"dim": 64, "hidden_dim": 128, "n_layers": 4, "n_heads": 4, "vocab_size": 257, )"
       R"("max_position_embeddings": 40})",
       of_bytes},
      {"nomic_bert", "drawn_bert.h", sizes + R"("vocab_size": 257, "max_position_embeddings": 40})", of_bytes},
      {"electra", "drawn_bert.h", sizes + R"("embedding_size": 32, "vocab_size": 257, "max_position_embeddings": 40})",
       of_bytes},
      {"modernbert", "drawn_bert.h",
       sizes + R"("vocab_size": 257, "max_position_embeddings": 40, "local_attention": 16})", of_bytes},
      {"vit", "drawn_vit.h", sizes + R"("image_size": 16, "patch_size": 4, "num_labels": 4})", ""},
      {"whisper", "drawn_whisper.h",
       R"({"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, )"
       R"("decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 128, "num_mel_bins": 12, )"
       R"("max_source_positions": 16, "max_target_positions": 8, "vocab_size": 16, "pad_token_id": 0, )"
       R"("decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2, "apply_spec_augment": false})",
       ""},
      {"t5", "drawn_t5.h", of_t5, of_words},
      {"mt5", "drawn_t5.h", of_t5, of_words},
      {"umt5", "drawn_t5.h", of_t5, of_words},
      {"bart", "drawn_t5.h",
       R"({"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, )"
       R"("decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 128, "vocab_size": 256, )"
       R"("max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1, )"
       R"("decoder_start_token_id": 0})",
       of_words},
      {"pegasus", "drawn_t5.h",
       R"({"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, )"
       R"("decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 128, "vocab_size": 256, )"
       R"("max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1, )"
       R"("decoder_start_token_id": 0})",
       of_words}};
  return families;
}

}  // namespace gantry::cli
