// Prompts that go through the stages together, and what has been chosen for them. Every rank of the pipeline keeps the
// same, so that only the choices travel back from the last stage.
#pragma once

#include <optional>
#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/generation/text_parts.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/tensor.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::generation {

// What the last stage has chosen: rows are sequences, `width` for each prompt.
struct Decision {
  std::vector<std::int64_t> tokens;   // by row
  std::vector<std::int64_t> sources;  // the row whose text each row goes on with; one of the same prompt
  std::vector<std::int64_t> joined;   // 1 where the token is a part of the sequence, 0 where that has ended before
  bool is_last = false;               // nothing more is wanted of the group

  torch::Tensor encode() const;  // int64 [rows + 1, 3]
  static Decision decode(const torch::Tensor& encoded);
};

// Left-padded rows with a cache, one new token a row after the first forward; or, without a cache, whole texts padded
// on the right, where a causal model's tokens do not see it.
class TextGroup {
 public:
  struct Options {
    int width = 1;                    // sequences of each prompt
    std::int64_t max_new_tokens = 0;  // of each sequence
    bool is_cached = true;
    TokenIds begin = {};  // the prompts are an encoder's, and each text begins with these tokens; empty: they are texts
    TensorDict encoder = {};  // what an encoder that reads no tokens is given, a row for each prompt; empty: none
    TensorDict images = {};   // entries of the prompts' images for the first forward; empty: none
    const SequenceParts* parts = nullptr;  // with a cache, how ranks share texts; not owned, null: there is one
  };
  // Without prompts it is finished, and its input a token of no rows.
  TextGroup(std::vector<TokenIds> prompts, const Options& options, torch::Device device);
  TextGroup(const TextGroup&) = delete;
  TextGroup& operator=(const TextGroup&) = delete;

  // {input_ids [rows, tokens]} of the coming forward, which the host knows until the next call. With an encoder
  // {decoder_input_ids, attention_mask, input_ids}, or what the encoder is given in place of the last two; until caches
  // have what was read of it, the mask aside.
  TensorDict input();
  // For the layers; absent without a cache. Holds until apply().
  std::optional<nn::TokenContext> context() const { return is_cached_ ? std::optional(context_) : std::nullopt; }
  // Each row's last token's of [rows, tokens, vocabulary].
  torch::Tensor last_of(const torch::Tensor& logits) const;
  void apply(const Decision& decision);

  const std::vector<TokenIds>& texts() const { return texts_; }  // a row each; of prompts before the first decision
  std::int64_t row_of(std::int64_t sequence) const { return rounds_ == 0 ? sequence / width_ : sequence; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths_.size()) * width_; }
  std::int64_t prompt_length(std::int64_t sequence) const { return lengths_[sequence / width_]; }
  std::int64_t rounds() const { return rounds_; }  // decisions so far: new tokens of each sequence
  bool is_finished() const { return is_finished_; }
  // Among the ranks that share the texts, the one that has the last tokens of the prompts.
  int chooser() const { return parts_ ? parts_->rank_of_last() : 0; }
  bool reads_encoder() const { return has_encoder_ && !continues_caches(); }

 private:
  bool continues_caches() const { return is_cached_ && rounds_ > 0; }
  bool shards_input() const { return parts_ && parts_->shards_prompts() && rounds_ == 0; }
  void make_context();

  int width_;
  bool is_cached_;
  torch::Device device_;
  std::vector<std::int64_t> lengths_;  // of the prompts
  std::int64_t longest_ = 0;
  std::optional<TextParts> parts_;  // where ranks share the texts
  std::vector<TokenIds> texts_;
  bool has_encoder_ = false;
  TensorDict encoder_;    // input of the encoder, a row of each entry for a row of texts_; with caches only the mask
  TensorDict images_;     // until the first decision
  torch::Tensor shifts_;  // [rows, 1]: added to the positions of new tokens; undefined: none
  nn::LayerCaches caches_;
  nn::TokenContext context_;
  HostCopy known_;
  std::int64_t rounds_ = 0;
  bool is_finished_;
};

}  // namespace gantry::generation
