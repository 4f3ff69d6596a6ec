// The policy of models::Decoder: shards every described decoder according to its description. Stages exchange {hidden
// [B, S, H]}. The stage with the layers of multi-token prediction also has the embedding and the last norm.
#pragma once

#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/policies/policy.h"

namespace gantry {

class DecoderPolicy final : public PolicyFor<models::DecoderImpl> {
 public:
  // For models of one family; empty: for all families.
  explicit DecoderPolicy(std::string family = {}) : family_(std::move(family)) {}
  std::string name() const override { return "DecoderPolicy"; }
  PolicyFit fit(const torch::nn::Module& model) const override;
  void validate_model(const models::DecoderImpl& model) const override;
  ModelSplit split(const models::DecoderImpl& model) const override;
  SharedParameters shared_parameters(const models::DecoderImpl& model) const override;
  std::vector<std::string> held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                       LayerRange layers) const override;

 private:
  std::string family_;
};

// Registers a family of described decoders together with its policy, for all commands and functions. Call it once for
// each name, before models of the family are used. Throws ConfigError if the name is already registered.
void add_decoder_family(const models::DecoderFamily& family);

}  // namespace gantry
