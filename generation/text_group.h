// A group of prompts that pass through the stages together, and the tokens chosen for them. Every rank of the
// pipeline keeps the same texts, so the last stage sends back only its choices.
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

// The choices of the last stage. Rows are sequences, `width` per prompt.
struct Decision {
  std::vector<std::int64_t> tokens;   // by row
  std::vector<std::int64_t> sources;  // by row: the row of the same prompt whose text it continues
  std::vector<std::int64_t> joined;   // by row: 1 if the token belongs to the sequence, 0 if that has ended
  bool is_last = false;               // the group is finished

  torch::Tensor encode() const;  // int64 [rows + 1, 3]
  static Decision decode(const torch::Tensor& encoded);
};

// With a cache, the input has left-padded rows in the first forward and one new token per row in later ones.
// Without a cache, each forward gets the full texts, padded on the right, which tokens of a causal model do
// not attend to.
class TextGroup {
 public:
  struct Options {
    int width = 1;                    // sequences per prompt
    std::int64_t max_new_tokens = 0;  // maximum per sequence
    bool is_cached = true;
    // If not empty and `encoder` is empty: prompts are the encoder's input, and texts begin with these
    // tokens.
    TokenIds begin = {};
    TensorDict encoder = {};  // input of an encoder that does not read tokens, a row per prompt; empty: none
    TensorDict images = {};   // entries of the prompts' images for the first forward; empty: none
    // The partition of texts over ranks, with a cache only; must outlive the group. Null: texts are on one
    // rank.
    const SequenceParts* parts = nullptr;
  };
  // A group without prompts is finished from the start. Its input has no rows and one column.
  TextGroup(std::vector<TokenIds> prompts, const Options& options, torch::Device device);
  TextGroup(const TextGroup&) = delete;
  TextGroup& operator=(const TextGroup&) = delete;

  // Returns the input of the next forward: {input_ids [rows, tokens]}. Its values are known to the host until
  // the next call (HostCopy). With an encoder: decoder_input_ids and the encoder's input (input_ids and
  // attention_mask, or Options::encoder). Once the caches have the encoder's output, only attention_mask
  // remains of the encoder's input.
  TensorDict input();
  // Returns the context for the layers, valid until apply(); nothing without a cache.
  std::optional<nn::TokenContext> context() const { return is_cached_ ? std::optional(context_) : std::nullopt; }
  // Returns the logits of each row's last token, from logits [rows, tokens, vocabulary].
  torch::Tensor last_of(const torch::Tensor& logits) const;
  void apply(const Decision& decision);

  const std::vector<TokenIds>& texts() const { return texts_; }  // rows: prompts, after apply() sequences
  std::int64_t row_of(std::int64_t sequence) const { return rounds_ == 0 ? sequence / width_ : sequence; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths_.size()) * width_; }
  std::int64_t prompt_length(std::int64_t sequence) const { return lengths_[sequence / width_]; }
  std::int64_t rounds() const { return rounds_; }  // decisions so far, the number of new tokens per sequence
  bool is_finished() const { return is_finished_; }
  // Returns the rank that has the last tokens of the prompts, among the ranks that share the texts.
  int chooser() const { return parts_ ? parts_->rank_of_last() : 0; }
  bool reads_encoder() const { return has_encoder_ && !continues_caches(); }

 private:
  bool continues_caches() const { return is_cached_ && rounds_ > 0; }
  bool shards_input() const { return parts_ && parts_->shards_prompts() && rounds_ == 0; }
  void make_context();

  int width_;
  bool is_cached_;
  torch::Device device_;
  std::vector<std::int64_t> lengths_;  // tokens of each prompt
  std::int64_t longest_ = 0;
  std::optional<TextParts> parts_;  // set if ranks share the texts
  std::vector<TokenIds> texts_;
  bool has_encoder_ = false;
  // Input of the encoder, by row of texts_. With a cache, only the mask remains after the first decision.
  TensorDict encoder_;
  TensorDict images_;     // entries of the images; empty after the first decision
  torch::Tensor shifts_;  // [rows, 1]: added to the positions of new tokens; undefined: none
  nn::LayerCaches caches_;
  nn::TokenContext context_;
  HostCopy known_;
  std::int64_t rounds_ = 0;
  bool is_finished_;
};

}  // namespace gantry::generation
