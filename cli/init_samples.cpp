#include "gantry/cli/init_samples.h"

namespace gantry::cli {

const std::vector<SampledFamily>& sampled_families() {
  // BERT: sums of 40 bytes; 256 is the mask token. The first position of RoBERTa is 2, after the padding position 1.
  const std::string sizes =
      R"({"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, )";
  static const std::vector<SampledFamily> families = {
      {"bert", "drawn_bert.h", sizes + R"("vocab_size": 257, "max_position_embeddings": 40})", "sequence_length: 40, "},
      {"roberta", "drawn_bert.h", sizes + R"("vocab_size": 257, "max_position_embeddings": 42, "type_vocab_size": 1})",
       "sequence_length: 40, "},
      {"vit", "drawn_vit.h", sizes + R"("image_size": 16, "patch_size": 4, "num_labels": 4})", ""},
      {"whisper", "drawn_whisper.h",
       R"({"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, )"
       R"("decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 128, "num_mel_bins": 12, )"
       R"("max_source_positions": 16, "max_target_positions": 8, "vocab_size": 16, "pad_token_id": 0, )"
       R"("decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2, "apply_spec_augment": false})",
       ""},
      {"t5", "drawn_t5.h",
       R"({"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, )"
       R"("vocab_size": 256})",
       "sequence_length: 9, "}};
  return families;
}

}  // namespace gantry::cli
