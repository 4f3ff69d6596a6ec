// The policy of models::Decoder: shards every described decoder according to its description. Stages exchange {hidden
// [B, S, H]}.
#pragma once

#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/policies/policy.h"
#include "gantry/policies/token_streams.h"

namespace gantry {

class DecoderPolicy final : public PolicyFor<models::DecoderImpl>, public SharesStreams {
 public:
  // For models of one family; empty: for all families.
  explicit DecoderPolicy(std::string family = {}) : family_(std::move(family)) {}
  std::string name() const override { return "DecoderPolicy"; }
  PolicyFit fit(const torch::nn::Module& model) const override;
  void validate_model(const models::DecoderImpl& model) const override;
  ShardPlan shard_plan(const models::DecoderImpl& model) const override;
  StageLayout stage_layout(const models::DecoderImpl& model) const override;
  LayerWork layer_work(const models::DecoderImpl& model) const override;
  std::string joint_loss(const models::DecoderImpl& model) const override;
  std::optional<AttentionHeads> context_heads(const models::DecoderImpl& model) const override;
  // A head for labels reads the last token, which any rank may hold: all ranks of parallel.context compute it.
  bool has_streams(const torch::nn::Module& model) const override;
  bool gathers_outputs(const torch::nn::Module&) const override { return true; }
  std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const override;
  std::optional<VocabularyModules> vocabulary(const models::DecoderImpl& model) const override;
  SharedParameters shared_parameters(const models::DecoderImpl& model) const override;
  std::vector<SplitOutput> split_outputs(const models::DecoderImpl& model) const override;
  Continuation continuation(const models::DecoderImpl& model) const override;
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "document_ids", "position_ids", "token_type_ids"};
  }

 private:
  std::string family_;
};

// Registers a family of described decoders together with its policy, for all commands and functions. Call it once for
// each name, before models of the family are used. Throws ConfigError if the name is already registered.
void add_decoder_family(const models::DecoderFamily& family);

}  // namespace gantry
