// The work of a model's layers from the keys of its config.json, without building it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/core/context_method.h"
#include "gantry/models/described/decoder_spec.h"
#include "gantry/schedule/layer_work.h"

namespace gantry::models {

// The work of a described decoder, by the weights of its layers (model_flops.h): of experts, those that a token uses.
// The layers of an image encoder's tower come first, with the work of a feature: as if every token were of an image.
LayerWork layer_work_of(const DecoderSpec& spec);

// The fewest heads of any layer's attention; none if no layer has attention.
AttentionHeads fewest_heads(const DecoderSpec& spec);
// Names the first layer whose mixer has fewer heads or channels on one of `tensor` tensor ranks than `context` ranks
// share; empty: there is none.
std::string context_objection(const DecoderSpec& spec, int context, int tensor);
// Throws ConfigError if there is such a layer.
void require_context(const DecoderSpec& spec, int context, int tensor);

// The description of a model by keys of its config.json, as layer_work_in takes them; absent where it is no described
// decoder's. ConfigError where the family can't do what the keys say.
std::optional<DecoderSpec> described_decoder(const nlohmann::json& model_keys, const std::string& family = "");
// The model's own keys, over those of config.json in its directory.
nlohmann::json keys_of_model(const ModelConfig& model);

// The number of layers: of a program's own family by its outline (model_outline.h), otherwise by the model's keys; 0:
// unknown.
int layers_of(const nlohmann::json& model_keys, const std::string& family = "");

// The multiplications of a token: one for each weight of a layer's and of the head's matrices. A backward has twice as
// many of each, so shares are the same. `family` is the policy's name, "llama" or "bert"; where it is empty, the keys'
// model_type names it. Of a family that Gantry does not know all layers are equal and nothing is known of the head:
// `last` is 0. ConfigError where the family can't do what the keys say.
LayerWork layer_work_in(const nlohmann::json& model_keys, int layers, const std::string& family = "");

}  // namespace gantry::models
